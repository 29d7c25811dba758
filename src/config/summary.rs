//! A configuration as `pointsman check` shows it.

use std::fmt::Write as _;

use crate::route::RouteSpec;

use super::{
    Action, Config, Listener, MaxConnections, PanicThreshold, Pool, Protocol, Short, Workers,
};

/// Listeners and pools as a table of text, each line ending with a newline.
pub fn summary(config: &Config) -> String {
    let mut rows = vec![["LISTENER", "BIND", "PROTOCOL", "ROUTE", "LEADS TO"].map(str::to_owned)];
    for listener in &config.listeners {
        let binds: Vec<String> = listener.bind.iter().map(ToString::to_string).collect();
        let mut first = [listener.name.to_string(), binds.join(", "), protocol(listener)];
        for route in listener.routes.iter().take(ROUTES_SHOWN) {
            let [name, bind, protocol] = std::mem::take(&mut first);
            let conditions = conditions(&route.conditions);
            rows.push([name, bind, protocol, conditions, leads_to(&route.action, config)]);
        }
        if let Some(more) = listener.routes.len().checked_sub(ROUTES_SHOWN).filter(|n| *n > 0) {
            let more = format!("{more} more routes");
            let nothing = String::new;
            rows.push([nothing(), nothing(), nothing(), more, nothing()]);
        }
    }
    let listeners = columns(&rows);

    let header = ["POOL", "BALANCE", "BACKENDS", "WEIGHT", "HEALTH", "PANIC"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(config.pools.iter().map(pool_row));
    let pools = columns(&rows);
    format!("{}\n{listeners}\n{pools}", process(config))
}

/// Routes shown of one listener; more are counted.
const ROUTES_SHOWN: usize = 50;

/// Values shown of one condition; more are counted.
const VALUES_SHOWN: usize = 3;

/// The conditions of a route in one line; of many values only the first.
pub fn conditions(spec: &RouteSpec) -> String {
    let RouteSpec { sni, alpn, source } = spec;
    let sni: Vec<String> = sni.iter().map(ToString::to_string).collect();
    let alpn = alpn.iter().map(|name| name.escape_ascii().to_string());
    let source: Vec<String> = source.iter().map(ToString::to_string).collect();
    let all = [("sni", sni), ("alpn", alpn.collect()), ("source", source)];
    let shown = all.iter().filter(|(_, values)| !values.is_empty()).map(|(key, values)| {
        let first: Vec<&str> = values.iter().take(VALUES_SHOWN).map(String::as_str).collect();
        match values.len().checked_sub(VALUES_SHOWN).filter(|more| *more > 0) {
            Some(more) => format!("{key} {} and {more} more", first.join(" ")),
            None => format!("{key} {}", first.join(" ")),
        }
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "everything else".to_owned() } else { shown.join(", ") }
}

fn protocol(listener: &Listener) -> String {
    match listener.protocol {
        Protocol::Tcp => "tcp".to_owned(),
        Protocol::Udp => format!("udp, {} flows", listener.limits.flows),
    }
}

fn leads_to(action: &Action, config: &Config) -> String {
    let name = |pool: &usize| config.pools.get(*pool).map_or("", |pool| &pool.name).to_owned();
    match action {
        Action::Pool(pool) => name(pool),
        Action::Split { shares, .. } => {
            let shares: Vec<String> =
                shares.iter().map(|s| format!("{} {}", name(&s.pool), s.weight)).collect();
            format!("split: {}", shares.join(", "))
        }
        Action::Reject => "reject".to_owned(),
        Action::Reset => "reset".to_owned(),
    }
}

fn process(config: &Config) -> String {
    let workers = match config.workers {
        Workers::Auto => "auto".to_owned(),
        Workers::Count(count) => count.to_string(),
    };
    let connections = match config.max_connections {
        MaxConnections::Auto => "auto".to_owned(),
        MaxConnections::Off => "off".to_owned(),
        MaxConnections::Count(count) => count.to_string(),
    };
    let admin = match &config.admin {
        Some(admin) => admin.bind.to_string(),
        None => "off".to_owned(),
    };
    format!("workers {workers}, max_connections {connections}, admin {admin}\n")
}

fn pool_row(pool: &Pool) -> [String; 6] {
    let spec = &pool.balance;
    let balance = match (spec.policy.hashes(), spec.bounded_load) {
        (true, Some(bound)) => format!("{} of {}, bound {bound}", spec.policy, spec.key),
        (true, None) => format!("{} of {}", spec.policy, spec.key),
        (false, _) => spec.policy.to_string(),
    };
    let weight: u32 = pool.backends.iter().map(|backend| u32::from(backend.weight)).sum();
    let health = match &pool.health {
        Some(check) => format!("{} every {}", check.probe.name(), Short(check.interval)),
        None => "off".to_owned(),
    };
    let panic = match pool.panic_threshold {
        PanicThreshold::Percent(percent) => percent.to_string(),
        PanicThreshold::Off => "off".to_owned(),
    };
    let count = pool.backends.len().to_string();
    [pool.name.to_string(), balance, count, weight.to_string(), health, panic]
}

/// Rows in columns as wide as their widest cell, two spaces apart.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
