//! A datagram is sent, and one is expected back.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::exchange::contains;
use super::no_connection;
use crate::address::Address;
use crate::config::Exchange;
use crate::limits::CHECK_ANSWER;
use crate::net::connect::classify;
use crate::state::{CheckFailure, ConnectFailure};
use crate::sys;

/// The first datagram that comes back decides. Where none is expected, silence passes at the end
/// of the timeout; then only an ICMP message can say otherwise.
pub(super) async fn check(
    address: &Address,
    exchange: &Exchange,
    deadline: Instant,
) -> Result<(), CheckFailure> {
    let Address::Ip(address) = address else {
        // The configuration has refused it.
        return Err(CheckFailure::Connect(ConnectFailure::Other));
    };
    let failure = |error: io::Error| no_connection(classify(&error));
    let ask = async {
        let socket = UdpSocket::bind(any_of_the_family(*address)).await?;
        // Connected, so that it hears of ICMP messages, and of nobody but the backend.
        sys::datagram::tell_errors(&socket, address.is_ipv6())?;
        socket.connect(address).await?;
        socket.send(exchange.send.as_deref().unwrap_or_default()).await?;
        Ok(socket)
    };
    let socket = ask.await.map_err(failure)?;
    let mut answer = vec![0; CHECK_ANSWER];
    match (timeout_at(deadline, socket.recv(&mut answer)).await, &exchange.expect) {
        (Ok(Err(error)), _) => Err(failure(error)),
        (_, None) => Ok(()),
        (Err(_), Some(_)) => Err(CheckFailure::Silent),
        (Ok(Ok(length)), Some(expect)) => {
            let found = contains(answer.get(..length).unwrap_or_default(), expect);
            if found { Ok(()) } else { Err(CheckFailure::Unexpected) }
        }
    }
}

fn any_of_the_family(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
