//! Something is sent, and something is expected in the answer.

use super::channel::Channel;
use crate::config::Exchange;
use crate::limits::CHECK_ANSWER;
use crate::state::CheckFailure;

/// Bytes read at a time.
const READ: usize = 1024;

/// Over a stream, whose answer may come in any pieces. `heard` becomes true with the first of them.
pub(super) async fn talk(
    channel: &mut Channel,
    exchange: &Exchange,
    heard: &mut bool,
) -> Result<(), CheckFailure> {
    if let Some(send) = &exchange.send {
        channel.write(send).await?;
    }
    let Some(expect) = &exchange.expect else { return Ok(()) };
    let mut answer = Vec::new();
    loop {
        let mut buffer = [0; READ];
        let read = channel.read(&mut buffer).await?;
        if read == 0 {
            return Err(if *heard { CheckFailure::Unexpected } else { CheckFailure::Closed });
        }
        *heard = true;
        // What was there may be the beginning of what is looked for.
        let known = answer.len().saturating_sub(expect.len());
        answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if contains(answer.get(known..).unwrap_or_default(), expect) {
            return Ok(());
        }
        if answer.len() >= CHECK_ANSWER {
            return Err(CheckFailure::TooLong);
        }
    }
}

/// Whether `answer` has `expect` somewhere in it.
pub(super) fn contains(answer: &[u8], expect: &[u8]) -> bool {
    // There are no windows of no bytes.
    expect.is_empty() || answer.windows(expect.len()).any(|window| window == expect)
}
