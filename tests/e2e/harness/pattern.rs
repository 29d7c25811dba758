//! A stream of bytes that tells where it is: a lost, repeated or moved byte is noticed.

use std::sync::OnceLock;

/// A prime, so that no power of two is a multiple of the period.
const PERIOD: usize = 1_048_573;

/// A position in the stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern {
    at: u64,
}

impl Pattern {
    /// Bytes passed so far.
    pub fn position(self) -> u64 {
        self.at
    }

    /// The next bytes, at least one and at most `most`.
    pub fn ahead(self, most: u64) -> &'static [u8] {
        let rest = &period()[(self.at % PERIOD as u64) as usize..];
        &rest[..rest.len().min(usize::try_from(most).unwrap_or(usize::MAX))]
    }

    /// Goes forward.
    pub fn pass(&mut self, bytes: usize) {
        self.at += bytes as u64;
    }

    /// Goes forward over `bytes`, which must be the next ones.
    pub fn check(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let expected = self.ahead(bytes.len() as u64);
            let (now, later) = bytes.split_at(expected.len());
            if now != expected {
                let wrong = now.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
                panic!("wrong byte at {}", self.at + wrong as u64);
            }
            self.pass(now.len());
            bytes = later;
        }
    }
}

fn period() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut rng = fastrand::Rng::with_seed(48);
        (0..PERIOD).map(|_| rng.u8(..)).collect()
    })
}
