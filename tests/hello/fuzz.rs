//! What holds of any bytes; what the fuzzer looks for exceptions to.

use pointsman::wire::client_hello::Answer;

use super::oracle::{MAX, read, read_split, reading, tls_parser};

/// Asserts that the answer does not depend on how `bytes` arrive, whatever the bound, and that an
/// accepted hello reads to tls-parser as it did to us.
pub fn check(bytes: &[u8]) {
    let whole = read(bytes);
    assert_eq!(read_split(bytes, 0..bytes.len().min(4096), MAX), whole);
    let mut rng = fastrand::Rng::with_seed(bytes.len() as u64);
    for _ in 0..4 {
        let mut ends: Vec<usize> =
            (0..rng.usize(1..8)).map(|_| rng.usize(..=bytes.len())).collect();
        ends.sort_unstable();
        assert_eq!(read_split(bytes, ends.clone(), MAX), whole, "{ends:?}");
        let max = rng.usize(..=bytes.len() + 1);
        let bounded = read_split(bytes, [], max);
        assert_eq!(read_split(bytes, ends.clone(), max), bounded, "{max} {ends:?}");
        assert!(bounded == whole || bounded == Answer::TooLarge, "{max}: {bounded:?} {whole:?}");
    }
    if let Answer::Hello(hello) = whole {
        assert_eq!(tls_parser(bytes), Some(reading(&hello)), "{hello:?}");
    }
}
