//! Every verdict, from backends that do as they like; and how each connection ends for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::*;
use crate::config::{Exchange, Http, Tls};
use crate::limits::{CHECK_ANSWER, CHECK_DISCARD};
use crate::wire::alert::UNRECOGNIZED_NAME;

/// Short, since every silence lasts as long.
const TIMEOUT: Duration = Duration::from_millis(300);

/// What a busy machine may add.
const PATIENCE: Duration = Duration::from_secs(20);

/// One thing that a backend does with a connection.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Waits for something to come, and takes it.
    Hear,
    Say(&'static [u8]),
    /// Says it again and again, so many bytes in all.
    Repeat(&'static [u8], usize),
    /// FIN.
    End,
    Reset,
}

use Act::{End, Hear, Repeat, Reset, Say};

/// Whether the connection is still there.
async fn play(mut stream: TcpStream, acts: &[Act]) -> Option<TcpStream> {
    for act in acts {
        let done = match act {
            Hear => stream.read(&mut [0; 4096]).await.map(|_| ()),
            Say(bytes) => stream.write_all(bytes).await,
            Repeat(bytes, total) => stream.write_all(&bytes.repeat(total / bytes.len())).await,
            End => stream.shutdown().await,
            Reset => {
                stream.set_zero_linger().unwrap();
                return None;
            }
        };
        // Whoever talks without end is hung up on.
        done.ok()?;
    }
    Some(stream)
}

/// The verdict of `probe` on a backend that acts like this; the backend must see FIN at the end.
async fn judge(probe: &Probe, acts: &[Act]) -> Result<(), CheckFailure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let backend = async {
        let stream = play(listener.accept().await.unwrap().0, acts).await;
        let Some(mut stream) = stream else { return };
        let mut rest = Vec::new();
        let end = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("an end");
        assert!(end.is_ok(), "{probe:?}, {acts:?}: {end:?} instead of FIN");
    };
    let checker = async {
        let client = TlsClients::default().client(probe).unwrap();
        let target = Target { address: Address::Ip(address), probe: Arc::new(probe.clone()) };
        let begun = Instant::now();
        let probed = target.check(client.as_ref(), TIMEOUT).await;
        let took = begun.elapsed();
        assert!(probed.result != Err(CheckFailure::Silent) || took >= TIMEOUT, "{took:?}");
        assert!(took < TIMEOUT + PATIENCE, "{took:?}");
        probed.ending.expect("a connection").close().await;
        probed.result
    };
    tokio::join!(backend, checker).1
}

async fn check(probe: &Probe, rows: &[(&[Act], Result<(), CheckFailure>)]) {
    for (acts, expected) in rows {
        assert_eq!(judge(probe, acts).await, *expected, "{probe:?}, {acts:?}");
    }
}

fn exchange(send: &[u8], expect: Option<&[u8]>) -> Exchange {
    let send = (!send.is_empty()).then(|| send.into());
    Exchange { send, expect: expect.map(Into::into) }
}

#[tokio::test]
async fn tcp_alone_asks_for_nothing() {
    let rows: &[(&[Act], _)] = &[
        (&[], Ok(())),
        (&[Say(b"220 ready\r\n")], Ok(())),
        (&[End], Ok(())),
        (&[Repeat(b"x", CHECK_DISCARD / 2)], Ok(())),
    ];
    check(&Probe::Tcp(exchange(b"", None)), rows).await;
    check(&Probe::Tcp(exchange(b"QUIT\r\n", None)), rows).await;
}

#[tokio::test]
async fn tcp_looks_for_what_it_expects() {
    let probe = Probe::Tcp(exchange(b"PING\r\n", Some(b"+PONG\r\n")));
    let rows: &[(&[Act], _)] = &[
        (&[Hear, Say(b"+PONG\r\n")], Ok(())),
        (&[Say(b"hello +PO"), Hear, Say(b"NG\r\n and more"), End], Ok(())),
        (&[Hear, Say(b"+PONG\n"), End], Err(CheckFailure::Unexpected)),
        (&[Hear, Say(b"-ERR\r\n")], Err(CheckFailure::Unexpected)),
        (&[Hear, End], Err(CheckFailure::Closed)),
        (&[Hear, Reset], Err(CheckFailure::Reset)),
        (&[Hear], Err(CheckFailure::Silent)),
        (&[Hear, Repeat(b"+PON", CHECK_ANSWER)], Err(CheckFailure::TooLong)),
        (&[Hear, Repeat(b"+PON", CHECK_DISCARD * 64)], Err(CheckFailure::TooLong)),
    ];
    check(&probe, rows).await;
}

/// However the answer is cut, it is found.
#[tokio::test]
async fn tcp_finds_it_in_pieces() {
    let probe = Probe::Tcp(exchange(b"", Some(b"abcab")));
    for whole in [b"ababcab".as_slice(), b"abcabcab", b"xxabcab", b"abcaxabcab"] {
        for at in 0..whole.len() {
            let (first, second) = whole.split_at(at);
            let acts = [Say(first), Say(second)];
            assert_eq!(judge(&probe, &acts).await, Ok(()), "{at}");
        }
    }
}

#[tokio::test]
async fn any_answer_will_do() {
    let rows: &[(&[Act], _)] = &[
        (&[Say(b"\0")], Ok(())),
        (&[End], Err(CheckFailure::Closed)),
        (&[], Err(CheckFailure::Silent)),
    ];
    check(&Probe::Tcp(exchange(b"", Some(b""))), rows).await;
}

#[tokio::test]
async fn http_judges_by_the_status() {
    let probe = Probe::Http(Http { path: "/".into(), host: None, expect: 200..=399, tls: None });
    let rows: &[(&[Act], _)] = &[
        (&[Hear, Say(b"HTTP/1.1 200 OK\r\n\r\n"), End], Ok(())),
        (&[Hear, Say(b"HTTP/1.0 399 X\r\nA: b\r\n\r\nbody"), End], Ok(())),
        (&[Hear, Say(b"HTTP/1.1 100 C\r\n\r\n"), Say(b"HTTP/1.1 204 N\r\n\r\n"), End], Ok(())),
        (&[Hear, Say(b"HTTP/1.1 200 OK\r\n\r\n"), Repeat(b"x", CHECK_DISCARD / 2), End], Ok(())),
        // A backend that stays although it was asked to close.
        (&[Hear, Say(b"HTTP/1.1 200 OK\r\n\r\n")], Ok(())),
        (&[Hear, Say(b"HTTP/1.1 400 X\r\n\r\n"), End], Err(CheckFailure::Status(400))),
        (&[Hear, Say(b"HTTP/1.1 199 X\r\n\r\n"), End], Err(CheckFailure::Closed)),
        (&[Hear, Say(b"220 mail\r\n\r\n")], Err(CheckFailure::Malformed)),
        (&[Hear, Say(&UNRECOGNIZED_NAME)], Err(CheckFailure::Malformed)),
        (&[Hear, Repeat(b"\0\xff", CHECK_DISCARD)], Err(CheckFailure::Malformed)),
        (&[Hear, Say(b"HTTP/1.1 200 OK\r\n"), End], Err(CheckFailure::Closed)),
        (&[Hear, Say(b"HTTP/1.1 200 OK\r\n")], Err(CheckFailure::Silent)),
        (&[Hear, Reset], Err(CheckFailure::Reset)),
        (&[Hear], Err(CheckFailure::Silent)),
        (&[End], Err(CheckFailure::Closed)),
        (
            &[Hear, Say(b"HTTP/1.1 200 OK\r\n"), Repeat(b"A: b\r\n", CHECK_DISCARD)],
            Err(CheckFailure::TooLong),
        ),
        (&[Hear, Repeat(b"HTTP/1.1 103 E\r\n\r\n", CHECK_DISCARD)], Err(CheckFailure::TooLong)),
    ];
    check(&probe, rows).await;
}

/// What real servers do in a handshake is tested with real ones.
#[tokio::test]
async fn what_is_not_tls_fails_a_handshake() {
    let tls = Tls { sni: None, ca_file: None };
    let http = |tls| Http { path: "/".into(), host: None, expect: 200..=399, tls: Some(tls) };
    let rows: &[(&[Act], _)] = &[
        (&[Hear, Say(&UNRECOGNIZED_NAME), End], Err(CheckFailure::TlsAlert(112))),
        (&[Hear, Say(&UNRECOGNIZED_NAME)], Err(CheckFailure::TlsAlert(112))),
        (&[Hear, Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), End], Err(CheckFailure::TlsError)),
        (&[Hear, Repeat(b"\x16\x03\x03\0\x04\x02\xff\xff\xff", 9000)], Err(CheckFailure::TlsError)),
        (&[Hear, Say(b"\x16\x03\x03"), End], Err(CheckFailure::Closed)),
        (&[Hear, Say(b"\x16\x03\x03")], Err(CheckFailure::Silent)),
        (&[Hear], Err(CheckFailure::Silent)),
        (&[Hear, Reset], Err(CheckFailure::Reset)),
        (&[End], Err(CheckFailure::Closed)),
    ];
    check(&Probe::Tls(tls.clone()), rows).await;
    check(&Probe::Http(http(tls)), rows).await;
}

#[tokio::test]
async fn udp_hears_answers_and_refusals() {
    let backend = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Ip(backend.local_addr().unwrap());
    for (expect, answer, expected) in [
        (Some(&b"pong"[..]), Some(&b"a pong!"[..]), Ok(())),
        (Some(b"pong"), Some(b"pon"), Err(CheckFailure::Unexpected)),
        (Some(b"pong"), Some(b""), Err(CheckFailure::Unexpected)),
        (Some(b"pong"), None, Err(CheckFailure::Silent)),
        (Some(b""), Some(b""), Ok(())),
        (Some(b""), None, Err(CheckFailure::Silent)),
        (None, Some(b"x"), Ok(())),
        (None, None, Ok(())),
    ] {
        let probe = Arc::new(Probe::Udp(exchange(b"ping", expect)));
        let target = Target { address: address.clone(), probe };
        let respond = async {
            let mut buffer = [0; 100];
            let (length, from) = backend.recv_from(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], b"ping");
            if let Some(answer) = answer {
                backend.send_to(answer, from).await.unwrap();
            }
        };
        let (probed, ()) = tokio::join!(target.check(None, TIMEOUT), respond);
        assert_eq!(probed.result, expected, "{expect:?} {answer:?}");
    }
    drop(backend);
    for expect in [None, Some(&b""[..])] {
        let probe = Arc::new(Probe::Udp(exchange(b"ping", expect)));
        let target = Target { address: address.clone(), probe };
        let refused = CheckFailure::Connect(ConnectFailure::Refused);
        assert_eq!(target.check(None, PATIENCE).await.result, Err(refused));
    }
}

#[test]
fn our_shortages_are_ours() {
    use rustix::io::Errno;
    for (errno, expected, ours) in [
        (Errno::MFILE, CheckFailure::Shortage, true),
        (Errno::NOBUFS, CheckFailure::Shortage, true),
        (Errno::ADDRNOTAVAIL, CheckFailure::Connect(ConnectFailure::LocalPorts), true),
        (Errno::ACCESS, CheckFailure::Connect(ConnectFailure::Other), false),
        (Errno::CONNREFUSED, CheckFailure::Connect(ConnectFailure::Refused), false),
    ] {
        let failure = no_connection(classify(&errno.into()));
        assert_eq!((failure, failure.is_ours()), (expected, ours));
    }
}
