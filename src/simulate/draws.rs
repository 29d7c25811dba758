//! What is left to chance. Everything about a request is a function of the seed and of the
//! request's number: whatever a policy does with one, the next is the same for all of them (common
//! random numbers), and two policies differ by what they do and not by their luck.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::distribution::{chance, scaled};
use super::scenario::{Load, Scenario};
use crate::balance::Spec;
use crate::balance::key::{KeyKind, Tuple};
use crate::limits::SIMULATE_KEYS;

/// 2^64 ÷ the golden ratio: multiples of it are spread evenly.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The address of the first client; the others follow.
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
const TCP: u8 = 6;
const EPHEMERAL: u16 = 32_768;

const _: () = assert!(SIMULATE_KEYS <= 1 << 24, "clients' addresses stay in 20.0.0.0/8");

/// The streams of chance that are not of one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    /// Ties and random picks of the policy.
    Picks = 1,
    /// Jitter of checks.
    Checks = 2,
    /// Gaps between arrivals.
    Arrivals = 3,
    /// Waits when all backends have been tried.
    Backoff = 4,
}

/// A generator for one purpose.
pub(super) fn stream(seed: u64, stream: Stream) -> fastrand::Rng {
    generator(seed, u64::MAX - stream as u64)
}

/// Seeds that are close to each other give generators that are not: the second is seeded by what
/// the first makes of it.
fn generator(seed: u64, number: u64) -> fastrand::Rng {
    let outer = fastrand::Rng::with_seed(seed).u64(..);
    fastrand::Rng::with_seed(outer ^ number.wrapping_mul(SPREAD)).fork()
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    key: u32,
    port: u16,
}

/// What chance has in store for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub client: Client,
    /// On a backend of ordinary speed.
    pub service: Duration,
    /// Afterwards, by a client of a closed loop.
    pub think: Duration,
}

/// Request number `number`, from 0.
pub(super) fn request(scenario: &Scenario, number: u64) -> Draw {
    let mut rng = generator(scenario.seed, number);
    let hot = rng.f64() < scenario.hot;
    let key = rng.u32(..scenario.keys);
    let client = Client { key: if hot { 0 } else { key }, port: rng.u16(EPHEMERAL..) };
    let service = scenario.service.sample(&mut rng);
    let think = match scenario.load {
        Load::Closed(_, think) => think.sample(&mut rng),
        Load::Open(_) => Duration::ZERO,
    };
    Draw { client, service, think }
}

/// Until the next arrival of a Poisson process.
pub(super) fn gap(rate: f64, rng: &mut fastrand::Rng) -> Duration {
    scaled(Duration::from_secs(1), -chance(rng).ln() / rate)
}

impl Client {
    /// The `number`-th of a list of clients that are all different for every kind of key, as far
    /// as there are keys; `None` at its end.
    pub fn numbered(scenario: &Scenario, kind: KeyKind, number: u32) -> Option<Client> {
        let (round, key) = (number / scenario.keys, number % scenario.keys);
        let port = u16::try_from(round).ok()?.checked_add(EPHEMERAL)?;
        (round == 0 || kind == KeyKind::FiveTuple).then_some(Client { key, port })
    }

    /// As the data plane would hash it, by a `hash_seed` of 0.
    pub fn hash(self, spec: &Spec) -> u64 {
        let name = (spec.key == KeyKind::Sni).then(|| format!("client-{}.example", self.key));
        let ip = Ipv4Addr::from_bits(FIRST_CLIENT.to_bits() + self.key);
        let client = SocketAddr::from((ip, self.port));
        spec.key.hash(&Tuple { protocol: TCP, client, local: LOCAL, sni: name.as_deref() }, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Distribution;

    fn scenario() -> Scenario {
        let service = Distribution::Exponential(Duration::from_millis(10));
        Scenario { keys: 100, hot: 0.5, ..Scenario::new(3, 4, service, Load::Open(100.0)) }
    }

    #[test]
    fn a_request_is_a_function_of_seed_and_number() {
        let a = scenario();
        assert_eq!(request(&a, 7), request(&a, 7));
        assert_ne!(request(&a, 7), request(&a, 8));
        let b = Scenario { seed: 1, ..a.clone() };
        assert_ne!(request(&a, 7), request(&b, 7));
        // Another load does not change what is drawn for it.
        let c = Scenario { load: Load::Closed(3, Distribution::NONE), ..a.clone() };
        assert_eq!(request(&a, 7), request(&c, 7));
    }

    /// Neighbouring numbers are as good as independent: mean and serial correlation.
    #[test]
    fn neighbours_are_independent() {
        let scenario = scenario();
        let times: Vec<f64> =
            (0..100_000).map(|n| request(&scenario, n).service.as_secs_f64() * 100.0).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let products = times.windows(2).map(|pair| (pair[0] - 1.0) * (pair[1] - 1.0));
        let correlation = products.sum::<f64>() / times.len() as f64;
        assert!(correlation.abs() < 0.02, "{correlation}");
    }

    #[test]
    fn the_hot_key_has_its_share() {
        let scenario = scenario();
        let hot = (0..10_000).filter(|&n| request(&scenario, n).client.key == 0).count();
        // Half, and one in a hundred of the other half.
        assert!((4800..=5300).contains(&hot), "{hot}");
    }

    #[test]
    fn gaps_have_the_rate() {
        let mut rng = stream(0, Stream::Arrivals);
        let total: Duration = (0..100_000).map(|_| gap(1000.0, &mut rng)).sum();
        assert!((total.as_secs_f64() - 100.0).abs() < 1.0, "{total:?}");
    }

    #[test]
    fn numbered_clients_differ() {
        let scenario = scenario();
        for (kind, count) in
            [(KeyKind::Source, 100), (KeyKind::Sni, 100), (KeyKind::FiveTuple, 300)]
        {
            let spec = super::super::tests::spec(crate::balance::PolicyKind::Hash, kind);
            let clients = (0..300).map_while(|n| Client::numbered(&scenario, kind, n));
            let mut hashes: Vec<u64> = clients.map(|client| client.hash(&spec)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), count, "{kind}");
        }
    }
}
