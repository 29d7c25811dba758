//! `connect.replay_hello`: a hello whose backend ends the connection without a byte goes to another
//! one, as long as nothing but the hello has come of the client.

use std::task::Waker;

use tokio::time::Instant;

use super::account::Account;
use super::attempt::{Connected, Course, Way, connect_any};
use crate::config::Timeouts;
use crate::health::outlier::Failure;
use crate::net::Socket;
use crate::net::offer::{Offer, offer};
use crate::state::{Direction, Stage, Termination};

/// Offers the hello to the backend, and to others when it declines. What is left of `hello` then is
/// to be sent yet. Where nobody takes it, the session goes on with the last that declined, and ends
/// as that has ended it.
///
/// # Errors
///
/// The session ends while it connects again.
pub(super) async fn offer_around(
    client: &mut Socket,
    connected: &mut Connected,
    hello: &mut Vec<u8>,
    way: &Way<'_>,
    course: &mut Course,
    account: &mut Account,
    timeouts: &Timeouts,
) -> Result<(), Termination> {
    let (worker, entry) = (account.worker().clone(), account.entry().clone());
    let ended = |waker: &Waker| entry.order.poll(waker).is_some();
    loop {
        let until = deadline(connected.since, course, account, timeouts);
        let offered = offer(client, &mut connected.socket, hello, until, ended).await;
        let Offer { written, declined } = offered;
        let backend = connected.place.lease.backend().clone();
        backend.passed(worker.index, Direction::In, written as u64);
        let mut taken = !declined;
        if declined {
            if written > 0 {
                connected.place.answered(Err(Failure::EarlyClose), &worker.process);
            }
            account.closed_early(connected.since.elapsed());
            entry.comes_to(Stage::Connecting(connected.place.pool.clone()));
            match connect_any(client, way, course, account, &entry.order).await {
                Ok(next) => {
                    way.pool.state.replayed(worker.index);
                    *connected = next;
                }
                Err(Termination::ConnectFailed) => taken = true,
                Err(termination) => return Err(termination),
            }
            entry.comes_to(Stage::Relaying(connected.place.lease.backend().clone()));
        }
        if taken {
            account.passed(Direction::In, written as u64);
            hello.drain(..written);
            return Ok(());
        }
    }
}

/// When it is too late to go elsewhere, or time for the relay to end the session.
fn deadline(since: Instant, course: &Course, account: &Account, timeouts: &Timeouts) -> Instant {
    let idle = timeouts.idle.map(|idle| since + idle);
    let all = [course.total_ends(), idle, account.lifetime_ends(timeouts)];
    all.into_iter().flatten().min().unwrap_or(since)
}
