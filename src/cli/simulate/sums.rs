//! `pointsman simulate plan` and `pointsman simulate tail`: arithmetic, without a clock.

use std::fmt::Write as _;

use serde::Serialize;

use super::args::{Format, Plan as PlanArgs, Tail as TailArgs};
use super::json;
use super::table::percent;
use crate::simulate::plan::{BUSY, Demand, Plan, Strain};
use crate::simulate::tail;
use crate::simulate::units::Time;

#[derive(Debug, Serialize)]
struct PlanAnswer {
    in_flight: f64,
    with_headroom: f64,
    nodes_carrying: u64,
    nodes_needed: u64,
    nodes: u64,
    enough: bool,
    raw_capacity: f64,
    short_of_raw_capacity: f64,
    whole: StrainAnswer,
    after_losing_spare: StrainAnswer,
    busy: bool,
}

/// Null where nothing is left, or queues grow without end.
#[derive(Debug, Serialize)]
struct StrainAnswer {
    nodes: u64,
    utilisation: Option<f64>,
    latency_factor: Option<f64>,
}

pub fn plan(args: &PlanArgs) -> anyhow::Result<String> {
    let PlanArgs { rate, latency, per_node, headroom, spare, nodes, format } = *args;
    let demand = Demand { rate, latency, per_node, headroom, spare };
    let plan = Plan::new(&demand, nodes);
    match format {
        Format::Table => Ok(plan_text(&demand, &plan, nodes.is_some())),
        Format::Json => json::pretty(&plan_answer(&demand, &plan)),
    }
}

fn left(demand: &Demand, plan: &Plan) -> u64 {
    plan.nodes.saturating_sub(u64::from(demand.spare))
}

fn plan_answer(demand: &Demand, plan: &Plan) -> PlanAnswer {
    let strain = |nodes, strain: Strain| StrainAnswer {
        nodes,
        utilisation: Some(strain.utilisation).filter(|utilisation| utilisation.is_finite()),
        latency_factor: strain.latency_factor,
    };
    PlanAnswer {
        in_flight: plan.in_flight,
        with_headroom: plan.with_headroom,
        nodes_carrying: plan.carrying,
        nodes_needed: plan.needed,
        nodes: plan.nodes,
        enough: plan.enough(),
        raw_capacity: plan.raw_capacity,
        short_of_raw_capacity: plan.short_of_raw(),
        whole: strain(plan.nodes, plan.whole),
        after_losing_spare: strain(left(demand, plan), plan.after_loss),
        busy: plan.busy(),
    }
}

fn plan_text(demand: &Demand, plan: &Plan, judged: bool) -> String {
    let Demand { rate, latency, per_node, headroom, spare } = *demand;
    let latency = Time(latency);
    let mut text = format!("in flight      {} = {rate}/s × {latency}\n", count(plan.in_flight));
    let with_headroom = count(plan.with_headroom);
    let _ = writeln!(text, "with headroom  {with_headroom}, {} on top", percent_fine(headroom));
    let (needed, carrying) = (plan.needed, plan.carrying);
    let _ = writeln!(
        text,
        "nodes needed   {needed} = {carrying} of {per_node} each, and {spare} spare"
    );
    if judged {
        let _ = writeln!(text, "nodes given    {}: {}", plan.nodes, verdict(plan));
    }
    let row = |nodes: u64, strain: Strain| {
        let factor = strain.latency_factor;
        let factor =
            factor.map_or("queues without end".to_owned(), |f| format!("latency × {f:.2}"));
        let utilisation = strain.utilisation;
        if utilisation.is_finite() {
            format!("{} on {}, {factor}", percent(utilisation), nodes)
        } else {
            "nothing left".to_owned()
        }
    };
    let _ = writeln!(text, "utilisation    {}", row(plan.nodes, plan.whole));
    let after = row(left(demand, plan), plan.after_loss);
    let _ = writeln!(text, "after a loss   {after}, with {spare} lost");
    if plan.busy() {
        let busy = percent_fine(BUSY);
        let _ = writeln!(
            text,
            "warning: above {busy} after the loss of {spare}; small peaks become long queues"
        );
    }
    text
}

fn verdict(plan: &Plan) -> String {
    if plan.enough() {
        return "enough".to_owned();
    }
    let missing = plan.needed - plan.nodes;
    let (short, raw) = (plan.short_of_raw(), count(plan.raw_capacity));
    if short > 0.0 {
        format!("not enough by {missing}; short by {} of raw capacity, {raw}", count(short))
    } else {
        format!("not enough by {missing}, for headroom and spares; raw capacity is {raw}")
    }
}

/// Whole numbers as such, others with one digit behind the point.
fn count(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[derive(Debug, Serialize)]
struct TailAnswer {
    p: f64,
    fan_out: u32,
    chance: f64,
    target: f64,
    largest_fan_out: Option<u32>,
}

pub fn tail(args: &TailArgs) -> anyhow::Result<String> {
    let TailArgs { p, fan_out, target, format } = *args;
    let chance = tail::chance(p, fan_out);
    let largest = tail::largest_fan_out(p, target);
    if format == Format::Json {
        let largest_fan_out = largest;
        return json::pretty(&TailAnswer { p, fan_out, chance, target, largest_fan_out });
    }
    let (services, share) = (if fan_out == 1 { "service" } else { "services" }, percent(chance));
    let target = percent_fine(target);
    let mut text = format!(
        "{share} of requests that wait for {fan_out} {services} meet a slow one, at {} each\n",
        percent_fine(p)
    );
    text += &match largest {
        None => format!("below {target} at any fan-out\n"),
        Some(0) => format!("below {target} at no fan-out: a single service is slow more often\n"),
        Some(largest) => format!("below {target} up to a fan-out of {largest}\n"),
    };
    Ok(text)
}

/// What was given, without digits that it does not have.
fn percent_fine(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
