//! What is wrong with a configuration, where, and what would be right.

use std::fmt;
use std::io;

use super::address::AddressFault;
use super::prefix::PrefixFault;
use super::units::{DurationFault, RateFault, Short, SizeFault};
use crate::limits::{CONFIG_BYTES, CONFIG_DEPTH, NAME_BYTES, SERVER_ID_AND_NONCE};
use crate::route::{PatternError, SplitError};
use crate::wire::alpn::AlpnError;

/// A place in a configuration file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One error, displayed as `LINE:COLUMN: PATH: what is wrong; what would be right`.
#[derive(Debug)]
pub struct Error {
    /// Where it is; `None` for flags and for a file that cannot be read.
    pub at: Option<Position>,
    /// The key, like `pools.api.backends[2].weight`, or the flag; empty for the whole file.
    pub path: String,
    /// What is wrong and what would be right.
    pub problem: Problem,
}

/// Every error of one configuration, in the order of the file; displayed one a line.
#[derive(Debug)]
pub struct Errors {
    /// The file's name as given; empty for flags.
    pub name: String,
    /// At least one, at most [`crate::limits::CONFIG_ERRORS`].
    pub list: Vec<Error>,
    /// Errors beyond those in `list`.
    pub more: usize,
}

impl Errors {
    /// The errors as lines, each with the name of the file.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let prefix = match self.name.as_str() {
            "" => String::new(),
            name => format!("{name}:"),
        };
        let more = (self.more > 0).then(|| match self.name.as_str() {
            "" => format!("{} more errors", self.more),
            name => format!("{name}: {} more errors", self.more),
        });
        let one = move |error: &Error| match (error.at, prefix.as_str()) {
            (None, "") => error.to_string(),
            (None, prefix) => format!("{prefix} {error}"),
            (Some(_), prefix) => format!("{prefix}{error}"),
        };
        self.list.iter().map(one).chain(more)
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}: ", at.line, at.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        self.problem.fmt(f)
    }
}

/// The closed vocabulary of what can be wrong.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Problem {
    // The file as a text.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("larger than {} MiB; is this the right file?", CONFIG_BYTES >> 20)]
    TooLarge,
    #[error("not UTF-8; save the file as UTF-8")]
    NotUtf8,
    #[error("the character U+{:04X} is not allowed; remove it", *.0 as u32)]
    Character(char),

    // The file as YAML.
    #[error("the file is empty; a configuration has at least `listeners` and `pools`")]
    EmptyFile,
    #[error("not valid YAML: {info}; {hint}")]
    Syntax { info: String, hint: &'static str },
    #[error("a tab in the indentation; indent with spaces")]
    Tab,
    #[error("an address in brackets without quotes; quote it: \"{0}\"")]
    UnquotedBrackets(String),
    #[error("a second document; one file holds one document, remove the `---`")]
    SecondDocument,
    #[error("nested deeper than {CONFIG_DEPTH} levels; nothing here is that deep")]
    TooDeep,
    #[error("an anchor (`&`); write the value out each time, or quote it if it is meant as text")]
    Anchor,
    #[error("an alias (`*`); write the value out, or quote it if it is meant as text")]
    Alias,
    #[error("a tag (`!`); remove it, or quote the value if it is meant as text")]
    Tag,
    #[error("a merge key (`<<`); write the keys out")]
    MergeKey,
    #[error("a key that is a list or a map; keys are plain words")]
    KeyShape,
    #[error("the key {0} is no word; quote it if it is meant as a name")]
    KeyWord(Quoted),
    #[error("duplicate key {key}, first on line {first}; keep one of them")]
    DuplicateKey { key: Quoted, first: usize },

    // Shape.
    #[error("unknown key {key}; {hint}")]
    UnknownKey { key: Quoted, hint: Hint },
    #[error("`{key}` is missing; {example}")]
    Missing { key: &'static str, example: &'static str },
    #[error("has no value; give it {expected}, or remove the key")]
    NoValue { expected: &'static str },
    #[error("is {found}; expected {expected}")]
    Shape { found: &'static str, expected: &'static str },
    #[error("{text} is a single value; expected {expected}")]
    Single { text: Quoted, expected: &'static str },
    #[error("is empty; expected {expected}")]
    Empty { expected: &'static str },

    // Values.
    #[error("{text} is not {expected}; write it like {example}")]
    Value { text: Quoted, expected: &'static str, example: &'static str },
    #[error("{text} is in quotes; write {expected} without them")]
    QuotedValue { text: Quoted, expected: &'static str },
    #[error("{text} means nothing here; write `off`")]
    MeantOff { text: Quoted },
    #[error("{text} is not `true` or `false`; write one of the two")]
    Boolean { text: Quoted },
    #[error("{text} has a leading zero; write {plain}")]
    LeadingZero { text: Quoted, plain: u64 },
    #[error("{text} is out of range; {min} to {max} are possible")]
    Range { text: Quoted, min: u64, max: u64 },
    #[error("{text} is not a {what}; {hint}")]
    Choice { text: Quoted, what: &'static str, hint: Hint },
    #[error("{text} is not a path; {hint}")]
    Path { text: Quoted, hint: &'static str },
    #[error(transparent)]
    Duration(#[from] DurationFault),
    #[error(transparent)]
    Size(#[from] SizeFault),
    #[error(transparent)]
    Rate(#[from] RateFault),
    #[error(transparent)]
    Address(#[from] AddressFault),
    #[error(transparent)]
    Prefix(#[from] PrefixFault),
    #[error(transparent)]
    Host(#[from] PatternError),
    #[error("{0}, like h2")]
    Alpn(#[from] AlpnError),

    // Meaning.
    #[error("an empty name; give it one")]
    NameEmpty,
    #[error("a name longer than {NAME_BYTES} bytes; shorten it")]
    NameLong,
    #[error("the name {0} contains a `/`, which separates pool and backend; use another character")]
    NameSlash(Quoted),
    #[error("the name {0} contains a control character; remove it")]
    NameControl(Quoted),
    #[error("the name {0} would vanish from a URL; use another")]
    NameDots(Quoted),
    #[error("the name {name} is used twice, first on line {first}; names are unique in a pool")]
    NameTwice { name: Quoted, first: usize },
    #[error("there is no pool {name}; {hint}")]
    UnknownPool { name: Quoted, hint: Hint },
    #[error("{address} is in the pool twice, here and {first}; remove one, or use `weight`")]
    BackendTwice { address: Quoted, first: Place },
    #[error("{0} has port 0, which nobody listens on; give the backend's port")]
    BackendPort(Quoted),
    #[error("{0} is the unspecified address, which cannot be connected to; give the backend's own")]
    BackendUnspecified(Quoted),
    #[error("{count} backends; a pool has at most {max}")]
    ManyBackends { count: usize, max: usize },
    #[error("{address} is bound twice, here and {first}; give each its own address")]
    BindTwice { address: Quoted, first: Place },
    #[error(
        "{address} and {other}, bound {first}, overlap; \
         remove one, or set `v6_only: true` where [::] takes IPv4 too"
    )]
    BindOverlap { address: Quoted, other: Quoted, first: Place },
    #[error("`{key}` beside `{first}`; a connection goes one way only, remove one of them")]
    TwoLeads { key: &'static str, first: &'static str },
    #[error("{count} routes; a listener has at most {max}")]
    ManyRoutes { count: usize, max: usize },
    #[error("a pool is in the split twice; add up its weights")]
    SplitTwice,
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(
        "`total_bytes` is less than `max_bytes` and an eighth: one hello may not fit; raise it"
    )]
    TotalBelowMax,
    #[error("another value than {first}; it is one bound for the process, write the same")]
    TotalDiffers { first: Place },
    #[error("`{key}` is only for `protocol: {protocol}`; remove it")]
    KeyOfProtocol { key: &'static str, protocol: &'static str },
    #[error("{0} is a unix socket, which takes no datagrams here; write an IP address and port")]
    UdpBind(Quoted),
    #[error(
        "the backend {address} of this pool is a unix socket, which no datagrams are sent to; \
         lead to another pool"
    )]
    UdpToUnix { address: Quoted },
    #[error(
        "`default` is only for `protocol: tcp`: over UDP a hello that stays incomplete is dropped; \
         remove it"
    )]
    UdpOnTimeout,
    #[error(
        "with `udp.per_packet` no hello is read, so `{key}` has no meaning; remove one of them"
    )]
    HelloPerPacket { key: &'static str },
    #[error("with `per_packet` each datagram is a flow of its own; remove one of them")]
    RequestsPerPacket,
    #[error("with `per_packet` a flow has to end after a number of answers; write `responses: 1`")]
    ResponsesPerPacket,
    #[error("the server_id {id} is used twice, first on line {first}; they are unique in a pool")]
    ServerIdTwice { id: Quoted, first: usize },
    #[error("{bytes} bytes, but {others} on line {first}; all of a pool have the same length")]
    ServerIdLength { bytes: usize, others: usize, first: usize },
    #[error("the backend {name} has no `server_id`; give each its own, like `server_id: 01`")]
    ServerIdMissing { name: Quoted },
    #[error(
        "{server_id} bytes of server_id and {nonce} of nonce do not fit into a connection id; \
         together they have at most {SERVER_ID_AND_NONCE}"
    )]
    QuicLbLong { server_id: usize, nonce: u8 },
    // Whatever stands there may be meant as the key, and errors are no place for that.
    #[error("not a key; 32 hex digits are, like those that `openssl rand -hex 16` prints")]
    SecretForm,
    #[error(
        "leads to {first} and to {second}, whose `quic_lb` differ but for `config` {config}: \
         nobody can tell their connection ids apart; change one `config`"
    )]
    QuicLbAmbiguous { first: Quoted, second: Quoted, config: u8 },
    #[error(
        "leads to {first} and to {second}, where server_id {id} is another backend; \
         give one of the two another id, or one of the pools another `config`"
    )]
    ServerIdAmbiguous { first: Quoted, second: Quoted, id: Quoted },
    #[error("`key` has no meaning for {policy}; remove it, or use a hash policy: {HASHES}")]
    KeyWithoutHash { policy: &'static str },
    #[error("`table_size` has no meaning for {policy}; remove it, or use maglev")]
    TableWithoutMaglev { policy: &'static str },
    #[error(
        "`bounded_load` has no meaning for {policy}; remove it, or use a hash policy: {HASHES}"
    )]
    BoundWithoutHash { policy: &'static str },
    #[error("a total weight of {weight}; a ring has room for {max}, use smaller weights or maglev")]
    RingLarge { weight: usize, max: usize },
    #[error("{size} is not a prime; write {next}")]
    TablePrime { size: usize, next: usize },
    #[error(
        "{size} slots are fewer than {backends} backends; write a prime of at least {backends}"
    )]
    TableSmall { size: usize, backends: usize },
    #[error("`{key}` has no meaning for a {kind} check; remove it, or use type {checks}")]
    KeyOfCheck { key: &'static str, kind: &'static str, checks: &'static str },
    #[error("`{key}` has no meaning without TLS; remove it, or add `tls: true`")]
    KeyOfTls { key: &'static str },
    #[error("`ca_file` is read only to verify; remove it, or add `verify: on`")]
    CaWithoutVerify,
    #[error(
        "the backend {address} is a unix socket, which has no {what}; put it into another pool"
    )]
    CheckOfUnix { address: Quoted, what: &'static str },
    #[error("{fast} is longer than interval {interval}; shorten it")]
    FastInterval { fast: Short, interval: Short },
    #[error("{bytes} bytes are too long for a check; it has room for {max}")]
    CheckLong { bytes: usize, max: usize },
    #[error("is missing; give at least one, like `{0}`")]
    FlagMissing(&'static str),
}

/// The hash policies, in messages.
const HASHES: &str = "hash, ring, rendezvous, maglev";

/// Where something was said before: a line of the file, or a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the file.
    Line(usize),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "on line {line}"),
            Place::Flag(flag) => write!(f, "by {flag}"),
        }
    }
}

/// A text from the configuration as a message shows it: in backquotes, on one line, shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    /// Characters shown of a text.
    const SHOWN: usize = 64;

    /// Quotes `text`.
    pub fn new(text: &str) -> Self {
        Quoted(printable(text, Self::SHOWN))
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

/// `text` on one line, without characters that change how a terminal shows the rest, and with at
/// most `shown` characters.
pub(super) fn printable(text: &str, shown: usize) -> String {
    let mut line = String::new();
    for (index, c) in text.chars().enumerate() {
        match c {
            _ if index == shown => return line + "…",
            '"' | '\'' | '\\' => line.push(c),
            _ => line.extend(c.escape_debug()),
        }
    }
    line
}

/// The second half of a message about a word that is not in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A near miss.
    DidYouMean(String),
    /// The whole list, when it is short.
    OneOf(Vec<String>),
    /// Nothing is near and the list is long or empty.
    Nothing(&'static str),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::DidYouMean(word) => write!(f, "did you mean `{word}`?"),
            Hint::OneOf(words) => write!(f, "possible: {}", words.join(", ")),
            Hint::Nothing(what) => f.write_str(what),
        }
    }
}

impl Hint {
    /// Words longer than this are compared with nothing (the comparison is quadratic).
    const COMPARED: usize = 64;

    /// Words of a list that is shown in full.
    const LISTED: usize = 16;

    /// The nearest of `words`, or all of them when there are few, or else `otherwise`.
    pub fn new<'w>(
        text: &str,
        words: impl Iterator<Item = &'w str> + Clone,
        otherwise: &'static str,
    ) -> Hint {
        let allowed = (text.chars().count() / 3).max(1);
        let near = words
            .clone()
            .filter(|w| w.len() <= Self::COMPARED && text.len() <= Self::COMPARED)
            .map(|w| (distance(text, w), w))
            .filter(|(d, w)| *d <= allowed && *d < w.chars().count() || starts_alike(text, w))
            .min_by_key(|(distance, _)| *distance);
        let listed = words.clone().count();
        match near {
            Some((_, word)) => Hint::DidYouMean(printable(word, Self::COMPARED)),
            None if (1..=Self::LISTED).contains(&listed) => {
                Hint::OneOf(words.map(|w| printable(w, Self::COMPARED)).collect())
            }
            None => Hint::Nothing(otherwise),
        }
    }
}

/// Edits from one word to the other, where case and `-` for `_` count nothing.
fn distance(text: &str, word: &str) -> usize {
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    strsim::damerau_levenshtein(&plain(text), &plain(word))
}

/// One is the other cut short, like `warning` and `warn`.
fn starts_alike(text: &str, word: &str) -> bool {
    text.len().min(word.len()) >= 3 && (text.starts_with(word) || word.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints() {
        let words = crate::balance::PolicyKind::ALL.map(|policy| policy.name());
        let all = format!("possible: {}", words.join(", "));
        for (text, expected) in [
            ("round-robin", "did you mean `round_robin`?"),
            ("roundrobin", "did you mean `round_robin`?"),
            ("Least_Conn", "did you mean `least_conn`?"),
            ("leastconns", "did you mean `least_conn`?"),
            ("hsah", "did you mean `hash`?"),
            ("rign", "did you mean `ring`?"),
            ("round", "did you mean `round_robin`?"),
            ("x", &all),
            ("", &all),
        ] {
            assert_eq!(Hint::new(text, words.into_iter(), "-").to_string(), expected, "{text}");
        }
        assert_eq!(Hint::new("x", [].into_iter(), "none").to_string(), "none");
    }

    #[test]
    fn quoting() {
        for (text, expected) in [
            ("a b", "`a b`"),
            ("a\nb\t\u{1b}", "`a\\nb\\t\\u{1b}`"),
            ("\u{202e}x", "`\\u{202e}x`"),
            ("\"é\"", "`\"é\"`"),
        ] {
            assert_eq!(Quoted::new(text).to_string(), expected);
        }
        assert_eq!(Quoted::new(&"x".repeat(1000)).to_string().chars().count(), 64 + 1 + 2);
    }
}
