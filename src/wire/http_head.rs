//! The head of an HTTP/1 response, of which only the status matters (RFC 9112 sections 2 and 4).

/// What bytes from the beginning of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The beginning of a head; more is needed.
    Incomplete,
    /// A whole head with this final status, 200 to 599. Interim responses came before it.
    Status(u16),
    /// No head of an HTTP/1 response, whatever follows.
    Malformed,
}

/// Reads the head at the beginning of `bytes`, all that has been received. Interim responses (1xx)
/// are passed over; 101 is none, since what follows it is no HTTP. Header fields are not looked
/// into, but end with an empty line; a bare LF ends a line as well (RFC 9112 section 2.2).
pub fn read(mut bytes: &[u8]) -> Head {
    loop {
        let status = match status_line(bytes) {
            Ok(Some(status)) => status,
            Ok(None) => return Head::Incomplete,
            Err(NotHttp) => return Head::Malformed,
        };
        let Some(rest) = after_empty_line(bytes) else { return Head::Incomplete };
        match status {
            101 => return Head::Malformed,
            100..=199 => bytes = rest,
            _ => return Head::Status(status),
        }
    }
}

struct NotHttp;

/// `HTTP/1.x SP 3DIGIT`, then a space or the end of the line; `None` if it is only the beginning of
/// that.
fn status_line(bytes: &[u8]) -> Result<Option<u16>, NotHttp> {
    let form = b"HTTP/1.d ddd";
    for (place, byte) in form.iter().zip(bytes) {
        let fits = if *place == b'd' { byte.is_ascii_digit() } else { place == byte };
        if !fits {
            return Err(NotHttp);
        }
    }
    let Some((line, rest)) = bytes.split_at_checked(form.len()) else { return Ok(None) };
    let digits = line.iter().skip(b"HTTP/1.d ".len());
    let status = digits.fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    match rest.first() {
        None => Ok(None),
        Some(b' ' | b'\r' | b'\n') if (100..600).contains(&status) => Ok(Some(status)),
        Some(_) => Err(NotHttp),
    }
}

/// What follows the first empty line.
fn after_empty_line(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let (line, after) = rest.split_at(end);
        rest = after.get(1..)?;
        if line.is_empty() || line == b"\r" {
            return Some(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Head::Status(200)),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\nbody", Head::Status(200)),
            ("HTTP/1.0 599\n\n", Head::Status(599)),
            ("HTTP/1.1 503 \r\nA: b\n\r\n", Head::Status(503)),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 N\r\n\r\n", Head::Status(204)),
            ("HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", Head::Incomplete),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Head::Malformed),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n", Head::Incomplete),
            ("HTTP/2.0 200 OK\r\n\r\n", Head::Malformed),
            ("HTTP/1.1 099 X\r\n\r\n", Head::Malformed),
            ("HTTP/1.1 600 X\r\n\r\n", Head::Malformed),
            ("HTTP/1.1 2000\r\n\r\n", Head::Malformed),
            ("HTTP/1.1 20x OK\r\n\r\n", Head::Malformed),
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", Head::Malformed),
            ("220 mail ESMTP\r\n", Head::Malformed),
            ("\u{16}\u{3}\u{1}", Head::Malformed),
        ] {
            assert_eq!(read(text.as_bytes()), expected, "{text:?}");
        }
    }

    /// Nothing is decided before its time.
    #[test]
    fn every_prefix_is_incomplete() {
        let head = "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 404 Not Found\r\nServer: a\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(read(&head.as_bytes()[..end]), Head::Incomplete, "{end}");
        }
        assert_eq!(read(head.as_bytes()), Head::Status(404));
    }

    /// The fuzzer's corpus.
    #[test]
    fn corpus() {
        for file in std::fs::read_dir("tests/fuzz/corpus/http_head").unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let whole = read(&bytes);
            for end in 0..bytes.len() {
                let part = read(&bytes[..end]);
                assert!(part == Head::Incomplete || part == whole, "{end}: {part:?}, {whole:?}");
            }
        }
    }

    proptest! {
        /// Any bytes, and any bytes after a good beginning, are read to an answer; more of them
        /// never change one that was given.
        #[test]
        fn answers_are_final(
            good in 0..40usize,
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0..100usize,
        ) {
            let head = b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n";
            let bytes = [&head[..good], &bytes].concat();
            let part = read(&bytes[..cut.min(bytes.len())]);
            prop_assert!(part == Head::Incomplete || part == read(&bytes));
        }
    }
}
