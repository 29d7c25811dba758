//! Through the routes of a listener, in the order of the file, to where the first match leads.

use std::fmt::Write as _;

use super::super::table::{Align, Table, fit};
use super::Source;
use super::hello::{self, Known, Sent};
use super::pick::{self, Peers};
use crate::config::{self, Protocol, conditions};
use crate::route::{Condition, Request};
use crate::snapshot::{Lead, Listener};
use crate::state::Termination;

/// Routes shown that do not match; more are counted.
const MISSES: usize = 12;

/// Widest list of conditions shown.
const CONDITIONS: usize = 60;

/// The whole answer.
pub fn explain(
    said: &config::Listener,
    listener: &Listener,
    sent: &Sent,
    source: Option<Source>,
) -> String {
    let binds: Vec<String> = said.bind.iter().map(ToString::to_string).collect();
    let peers = Peers::new(said.protocol, &said.bind, source);
    let (read, known) = hello::read(sent, said.protocol, listener.reads_hello, &listener.preread);
    let (protocol, ended) = match said.protocol {
        Protocol::Tcp => ("", "closed"),
        Protocol::Udp => (", a flow of udp", "dropped"),
    };
    let mut out = format!("listener  {} on {}{protocol}\n", said.name, binds.join(", "));
    push(&mut out, format_args!("hello     {read}\n"));
    push(&mut out, format_args!("source    {peers}\n"));
    let Some(known) = known else {
        push(&mut out, format_args!("\n{ended} before any route\n"));
        return out;
    };
    let request = Request { sni: known.sni.as_deref(), alpn: &known.alpn, source: peers.source() };
    let found = listener.routes.find(&request);
    push(&mut out, format_args!("\n{}\n", routes(&said.routes, &request, found)));
    match found.and_then(|index| listener.actions.get(index)) {
        Some(lead) => out.push_str(&follow(lead, &known, &peers)),
        None => {
            push(&mut out, format_args!("{ended}: no route ({})\n", Termination::NoRoute.name()))
        }
    }
    out
}

/// Every route up to the one that matches.
fn routes(routes: &[config::Route], request: &Request, found: Option<usize>) -> String {
    let mut table =
        Table::new(&[("ROUTE", Align::Left), ("CONDITIONS", Align::Left), ("", Align::Left)]);
    let mut row = |index: usize, verdict: &str| {
        if let Some(route) = routes.get(index) {
            let conditions = fit(&conditions(&route.conditions), CONDITIONS);
            table.row([format!("routes[{index}]"), conditions, verdict.to_owned()]);
        }
    };
    let tried = found.unwrap_or(routes.len());
    for (index, route) in routes.iter().enumerate().take(tried.min(MISSES)) {
        let unmet = route.conditions.unmet(request);
        row(index, unmet.map_or("", |condition| miss(condition, request)));
    }
    if let Some(more) = tried.checked_sub(MISSES).filter(|more| *more > 0) {
        table.row(["...".to_owned(), format!("{more} more that do not match")]);
    }
    if let Some(index) = found {
        let name = format!("routes[{index}]");
        let conditions = routes.get(index).map(|route| conditions(&route.conditions));
        let conditions = fit(&conditions.unwrap_or_default(), CONDITIONS);
        table.row([name, conditions, "matches".to_owned()]);
    }
    table.render()
}

/// Why a condition does not hold.
fn miss(condition: Condition, request: &Request) -> &'static str {
    match condition {
        Condition::Sni if request.sni.is_none() => "no: no sni",
        Condition::Sni => "no: another sni",
        Condition::Alpn if request.alpn.is_empty() => "no: no alpn",
        Condition::Alpn => "no: another alpn",
        Condition::Source if request.source.is_none() => "no: source unknown",
        Condition::Source => "no: another source",
    }
}

fn follow(lead: &Lead, known: &Known, peers: &Peers) -> String {
    let termination = Termination::Rejected.name();
    match lead {
        Lead::Pool(pool) => pick::of_pool(pool, known.sni.as_deref(), peers),
        Lead::Split(split, pools) => pick::of_split(split, pools, known.sni.as_deref(), peers),
        Lead::Reject | Lead::Reset if peers.protocol == Protocol::Udp => {
            format!("dropped; over UDP nothing tells the client ({termination})\n")
        }
        Lead::Reject if known.tls => {
            format!("rejected with the TLS alert unrecognized_name ({termination})\n")
        }
        Lead::Reject => format!("rejected without an alert, since it is not TLS ({termination})\n"),
        Lead::Reset => format!("rejected with RST ({termination})\n"),
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}
