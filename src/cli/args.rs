//! What the command line accepts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::backend::{BackendName, NewWeight};
use super::explain::Source;
use super::simulate::Simulate;
use crate::address::Address;
use crate::route::HostPattern;

/// A layer-4 connection balancer.
#[derive(Debug, Parser)]
#[command(name = "pointsman", version, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 success, 1 the operation failed, 2 wrong usage.")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    Check(Check),
    Explain(Explain),
    Reload(Reload),
    Status(Status),
    Drain(Drain),
    /// Let a backend have new connections again
    Ready(SetAdmin),
    /// As drain, and the backend is not checked
    Maintenance(SetAdmin),
    Weight(SetWeight),
    Sessions(Sessions),
    Demo(Demo),
    Simulate(Simulate),
}

/// Run in the foreground, from a configuration file or from flags
///
/// SIGHUP reloads the file; SIGTERM and SIGINT stop gracefully, a second one at once; SIGUSR1
/// reopens log files.
#[derive(Debug, Args)]
pub struct Run {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", required_unless_present = "listen")]
    #[arg(conflicts_with_all = ["listen", "backend", "balance", "admin"])]
    pub config: Option<PathBuf>,

    /// Address to listen on; may be repeated
    #[arg(long, value_name = "ADDR", requires = "backend")]
    pub listen: Vec<String>,

    /// Address to send connections to; may be repeated
    #[arg(long, value_name = "ADDR", requires = "listen")]
    pub backend: Vec<String>,

    /// Policy that picks a backend
    #[arg(long, value_name = "POLICY", requires = "listen")]
    pub balance: Option<String>,

    /// Address of the admin server
    #[arg(long, value_name = "ADDR", requires = "listen")]
    pub admin: Option<String>,
}

/// Validate a configuration file and print what it says; opens no socket
///
/// Errors and warnings go to stderr.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,

    /// Print the whole configuration with every default filled in, as YAML, and no summary
    #[arg(long)]
    pub effective: bool,
}

/// Say which route, pool and backend a connection would get, and why; opens no socket
///
/// What is not given is unknown: without --source no `source` condition holds.
#[derive(Debug, Args)]
pub struct Explain {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,

    /// The listener that the connection comes to
    #[arg(long, value_name = "NAME")]
    pub listener: String,

    /// Host name in the client's hello
    #[arg(long, value_name = "NAME", value_parser = super::explain::parse_name)]
    pub sni: Option<HostPattern>,

    /// Protocol that the client offers, like h2; several as a list with commas, or repeated
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',')]
    #[arg(value_parser = super::explain::parse_protocol)]
    pub alpn: Vec<String>,

    /// The client's address
    #[arg(long, value_name = "IP[:PORT]", value_parser = super::explain::parse_source)]
    pub source: Option<Source>,

    /// File with the bytes that a client sends first, as captured; over UDP one datagram, and again
    /// for each that follows
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sni", "alpn"])]
    pub hello: Vec<PathBuf>,
}

/// Ask the running process to reload its configuration
#[derive(Debug, Args)]
pub struct Reload {
    #[command(flatten)]
    pub admin: Admin,
}

/// Show listeners, pools and backends of the running process
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub admin: Admin,

    /// Print the admin server's JSON as it is
    #[arg(long)]
    pub json: bool,
}

/// Give a backend no new connections; those it has go on
///
/// Not even in panic. Lasts over reloads, until `ready`.
#[derive(Debug, Args)]
pub struct Drain {
    /// The backend, by its name or address
    #[arg(value_name = "POOL/BACKEND")]
    pub backend: BackendName,

    /// Wait for its sessions to end; fails and says how many are left when the time is over
    #[arg(long, value_name = "DURATION", value_parser = crate::config::parse_duration)]
    pub wait: Option<Duration>,

    #[command(flatten)]
    pub admin: Admin,
}

// The words of `ready` and `maintenance` are beside their names in `Command`.
#[derive(Debug, Args)]
pub struct SetAdmin {
    /// The backend, by its name or address
    #[arg(value_name = "POOL/BACKEND")]
    pub backend: BackendName,

    #[command(flatten)]
    pub admin: Admin,
}

/// Give a backend another weight than the configuration does
///
/// Lasts over reloads, until it is set back or the process ends. Keys of hash policies move.
#[derive(Debug, Args)]
pub struct SetWeight {
    /// The backend, by its name or address
    #[arg(value_name = "POOL/BACKEND")]
    pub backend: BackendName,

    /// 0 to 256, where 0 gets no new connections; or `configured`
    #[arg(value_name = "WEIGHT")]
    pub weight: NewWeight,

    #[command(flatten)]
    pub admin: Admin,
}

/// Show the largest sessions of the running process, or end one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Sessions {
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,

    #[command(flatten)]
    pub list: ListSessions,
}

#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    End(EndSession),
}

#[derive(Debug, Args)]
pub struct ListSessions {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,

    /// Print the admin server's JSON as it is
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub admin: Admin,
}

/// End a session by its id, as the list and the access log show it
///
/// Both its sides see FIN; the access log says `drained`.
#[derive(Debug, Args)]
pub struct EndSession {
    /// 16 hex digits
    #[arg(value_name = "ID")]
    pub id: String,

    #[command(flatten)]
    pub admin: Admin,
}

/// Where the running process is.
#[derive(Debug, Args)]
pub struct Admin {
    /// Address of the admin server: IP:PORT or unix:/path
    #[arg(long = "admin", value_name = "ADDR", default_value = "127.0.0.1:9901")]
    pub address: Address,

    /// File with the bearer token, for an admin server elsewhere than on loopback
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// See it work: HTTPS sites, name servers, a balancer, traffic, and backends that fail
///
/// Needs nothing but this program. Ends with ctrl-c, or by itself after --for.
#[derive(Debug, Args)]
pub struct Demo {
    /// How long, like 20s or 2m
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::config::parse_duration)]
    pub duration: Option<Duration>,

    /// Address to listen on for HTTPS; the kernel chooses a port for 0
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: Address,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_accepted_and_what_is_wrong_usage() {
        for (line, expected) in [
            ("run -c a.yaml", None),
            ("run --config a.yaml", None),
            ("run --listen 127.0.0.1:1 --backend 127.0.0.1:2 --backend 127.0.0.1:3", None),
            ("run --listen [::]:1 --backend 10.0.0.1:2 --balance p2c --admin unix:/a", None),
            ("run", Some(ErrorKind::MissingRequiredArgument)),
            ("run --listen 127.0.0.1:1", Some(ErrorKind::MissingRequiredArgument)),
            ("run --backend 127.0.0.1:1", Some(ErrorKind::MissingRequiredArgument)),
            ("run -c a --listen 127.0.0.1:1", Some(ErrorKind::ArgumentConflict)),
            ("run -c a --admin 127.0.0.1:1", Some(ErrorKind::ArgumentConflict)),
            ("check", Some(ErrorKind::MissingRequiredArgument)),
            ("check -c a.yaml", None),
            ("explain -c a.yaml --listener edge", None),
            ("explain -c a --listener e --sni BÜCHER.example --alpn h2,http/1.1 --alpn x", None),
            ("explain -c a --listener e --source 192.0.2.1", None),
            ("explain -c a --listener e --source [2001:db8::1]:443 --hello f", None),
            ("explain -c a --listener e --hello f --hello g", None),
            ("explain -c a.yaml", Some(ErrorKind::MissingRequiredArgument)),
            ("explain -c a --listener e --sni *.a.example", Some(ErrorKind::ValueValidation)),
            ("explain -c a --listener e --sni 10.0.0.1", Some(ErrorKind::ValueValidation)),
            ("explain -c a --listener e --alpn h2,,x", Some(ErrorKind::ValueValidation)),
            ("explain -c a --listener e --source here", Some(ErrorKind::ValueValidation)),
            ("explain -c a --listener e --hello f --sni a", Some(ErrorKind::ArgumentConflict)),
            ("explain -c a --listener e --hello f --alpn a", Some(ErrorKind::ArgumentConflict)),
            ("status --json --admin unix:/run/a.sock", None),
            ("status --admin localhost", Some(ErrorKind::ValueValidation)),
            ("reload --token-file t", None),
            ("drain www/b1 --wait 30s", None),
            ("drain www/unix:/run/a.sock", None),
            ("drain www", Some(ErrorKind::ValueValidation)),
            ("drain", Some(ErrorKind::MissingRequiredArgument)),
            ("drain www/b1 --wait soon", Some(ErrorKind::ValueValidation)),
            ("ready www/b1 --admin unix:/run/a.sock", None),
            ("maintenance www/10.0.0.1:80", None),
            ("weight www/b1 3", None),
            ("weight www/b1 configured", None),
            ("weight www/b1", Some(ErrorKind::MissingRequiredArgument)),
            ("weight www/b1 257", Some(ErrorKind::ValueValidation)),
            ("sessions", None),
            ("sessions --limit 5 --json", None),
            ("sessions --limit 0", Some(ErrorKind::ValueValidation)),
            ("sessions end 68d0a1b200000001 --admin unix:/run/a.sock", None),
            ("sessions end", Some(ErrorKind::MissingRequiredArgument)),
            ("sessions --limit 5 end 1", Some(ErrorKind::ArgumentConflict)),
            ("demo", None),
            ("demo --for 20s --listen 127.0.0.1:8080", None),
            ("demo --for soon", Some(ErrorKind::ValueValidation)),
            ("simulate --backends 3 --rate 100 --service exp:5ms --duration 1m", None),
            ("simulate plan --rate 1 --latency 1s --per-node 1", None),
            ("simulate tail --p 0.1 --fan-out 3", None),
            ("simulate --backends 3", Some(ErrorKind::MissingRequiredArgument)),
            ("", Some(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)),
            ("fly", Some(ErrorKind::InvalidSubcommand)),
            ("--version", Some(ErrorKind::DisplayVersion)),
        ] {
            let words = std::iter::once("pointsman").chain(line.split_whitespace());
            let got = Arguments::try_parse_from(words).err();
            assert_eq!(got.as_ref().map(clap::Error::kind), expected, "{line}");
            let code = got.map_or(0, |error| error.exit_code());
            let wrong = expected.is_some_and(|kind| kind != ErrorKind::DisplayVersion);
            assert_eq!(code, if wrong { 2 } else { 0 }, "{line}");
        }
    }
}
