//! How many nodes a fleet needs.
//!
//! By Little's law a fleet has λ × W requests in flight. That, and a headroom on top for peaks and
//! for being wrong, is divided by what a node can have in flight; then as many nodes are added as
//! may be missing at once. The closer a node is to full, the longer its queue: in the simplest
//! queue (M/M/1) a request takes 1 ÷ (1 − ρ) times what it takes on an idle node.

use std::time::Duration;

/// Above this utilisation small mistakes become long queues.
pub const BUSY: f64 = 0.7;

/// What a fleet is sized for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Requests or connections a second; above 0.
    pub rate: f64,
    /// How long each stays.
    pub latency: Duration,
    /// What one node can have in flight; at least 1.
    pub per_node: u32,
    /// Share of what is in flight that is added on top.
    pub headroom: f64,
    /// Nodes that may be missing at once.
    pub spare: u32,
}

/// The fleet that meets a demand, or one that was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Requests in flight: rate × latency.
    pub in_flight: f64,
    /// With the headroom on top.
    pub with_headroom: f64,
    /// Nodes that carry it, without spares; at least 1.
    pub carrying: u64,
    /// Nodes that the demand needs, spares included.
    pub needed: u64,
    /// Nodes of this fleet: those needed, or those given.
    pub nodes: u64,
    /// What the fleet can have in flight with every node, without headroom.
    pub raw_capacity: f64,
    /// With every node.
    pub whole: Strain,
    /// Without the spares.
    pub after_loss: Strain,
}

/// How hard a fleet works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strain {
    /// ρ: in flight ÷ capacity; infinite if nothing is left.
    pub utilisation: f64,
    /// 1 ÷ (1 − ρ); `None` from ρ = 1 on, where queues grow without end.
    pub latency_factor: Option<f64>,
}

impl Plan {
    /// Sizes a fleet, or judges the one of `nodes`.
    pub fn new(demand: &Demand, nodes: Option<u32>) -> Plan {
        let in_flight = demand.rate * demand.latency.as_secs_f64();
        let with_headroom = in_flight * (1.0 + demand.headroom);
        let per_node = f64::from(demand.per_node);
        let carrying = round_up(with_headroom / per_node).max(1);
        let needed = carrying.saturating_add(u64::from(demand.spare));
        let nodes = nodes.map_or(needed, u64::from);
        let strain = |nodes: u64| Strain::new(in_flight, nodes as f64 * per_node);
        Plan {
            in_flight,
            with_headroom,
            carrying,
            needed,
            nodes,
            raw_capacity: nodes as f64 * per_node,
            whole: strain(nodes),
            after_loss: strain(nodes.saturating_sub(u64::from(demand.spare))),
        }
    }

    /// Whether the fleet has the nodes that the demand needs.
    pub fn enough(&self) -> bool {
        self.nodes >= self.needed
    }

    /// Requests in flight beyond what every node together can have; 0 if there is room.
    pub fn short_of_raw(&self) -> f64 {
        (self.in_flight - self.raw_capacity).max(0.0)
    }

    /// Whether a fleet that has lost its spares is busier than [`BUSY`].
    pub fn busy(&self) -> bool {
        self.after_loss.utilisation > BUSY + ROUNDING
    }
}

impl Strain {
    fn new(in_flight: f64, capacity: f64) -> Strain {
        let utilisation = if capacity > 0.0 { in_flight / capacity } else { f64::INFINITY };
        let latency_factor = (utilisation < 1.0).then(|| 1.0 / (1.0 - utilisation));
        Strain { utilisation, latency_factor }
    }
}

/// 36,000 × 0.065 is not exactly 2,340 in binary; that must not cost a node.
const ROUNDING: f64 = 1e-9;

fn round_up(value: f64) -> u64 {
    (value * (1.0 - ROUNDING)).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(latency_ms: u64) -> Demand {
        let latency = Duration::from_millis(latency_ms);
        Demand { rate: 36_000.0, latency, per_node: 800, headroom: 0.25, spare: 2 }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.max(1.0), "{found} for {expected}");
    }

    #[test]
    fn a_fleet_is_sized() {
        let plan = Plan::new(&demand(65), None);
        near(plan.in_flight, 2340.0);
        near(plan.with_headroom, 2925.0);
        assert_eq!((plan.carrying, plan.needed, plan.nodes), (4, 6, 6));
        near(plan.whole.utilisation, 2340.0 / 4800.0);
        near(plan.after_loss.utilisation, 2340.0 / 3200.0);
        near(plan.after_loss.latency_factor.unwrap(), 3200.0 / 860.0);
        assert!(plan.enough() && plan.busy());
        assert_eq!(plan.short_of_raw(), 0.0);
    }

    #[test]
    fn a_given_fleet_is_judged() {
        let plan = Plan::new(&demand(260), Some(6));
        near(plan.short_of_raw(), 4560.0);
        assert_eq!((plan.carrying, plan.needed, plan.nodes), (15, 17, 6));
        assert!(!plan.enough() && plan.busy());
        assert_eq!(plan.whole.latency_factor, None);
        // Enough for today, but not with the headroom and the spares.
        let plan = Plan::new(&demand(65), Some(3));
        assert!(!plan.enough());
        assert_eq!(plan.short_of_raw(), 0.0);
        assert!(Plan::new(&demand(65), Some(7)).enough());
        // Nothing left.
        let plan = Plan::new(&demand(65), Some(1));
        assert_eq!(plan.after_loss, Strain { utilisation: f64::INFINITY, latency_factor: None });
    }

    #[test]
    fn what_fits_exactly_needs_no_more() {
        // 0.1 × 3 is a little more than 0.3 in binary.
        let mut exact = Demand { rate: 3.0, per_node: 1, headroom: 0.0, spare: 0, ..demand(0) };
        exact.latency = Duration::from_millis(1000);
        assert_eq!(Plan::new(&exact, None).nodes, 3);
        exact = Demand { rate: 7.0, headroom: 0.1, per_node: 77, ..exact };
        exact.latency = Duration::from_secs(10);
        assert_eq!(Plan::new(&exact, None).nodes, 1);
        exact = Demand { rate: 0.7, headroom: 0.0, per_node: 1, ..exact };
        exact.latency = Duration::from_secs(1);
        assert!(!Plan::new(&exact, None).busy(), "70 % is not above 70 %");
        exact.rate = 1e-9;
        assert_eq!(Plan::new(&exact, None).nodes, 1);
    }
}
