//! YAML text to a tree in which everything knows its place.
//!
//! Built from the events of a YAML 1.2 parser, without its types: a scalar stays the text it was
//! written as, and only the key it belongs to decides what it means. So `no`, `0443` or `22:22`
//! are never anything but those characters. What YAML has beyond maps, lists and scalars
//! (anchors, tags, merge keys, several documents) is refused here, each with its place.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::error::{Position, Problem, Quoted, printable};
use super::report::Report;
use super::value::{Path, Step};
use crate::limits::CONFIG_DEPTH;

/// A value and where it starts.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) kind: Kind,
}

/// The shapes of a value.
#[derive(Debug)]
pub(super) enum Kind {
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Reported already: whoever reads it says nothing more.
    Refused,
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) at: Position,
    pub(super) value: Node,
}

/// A map or list whose end has not come yet.
#[derive(Debug)]
enum Open {
    List { at: Position, items: Vec<Node> },
    Map(OpenMap),
}

#[derive(Debug)]
struct OpenMap {
    at: Position,
    entries: Vec<Entry>,
    /// Where each key was seen first.
    lines: HashMap<Box<str>, usize>,
    key: Key,
    /// A key was refused that may have held what the map seems to lack.
    broken: bool,
}

/// What is known of the next entry of a map.
#[derive(Debug)]
enum Key {
    Awaited,
    Read(Box<str>, Position),
    /// Reported; its value is dropped.
    Refused,
}

/// Reads one document. `None` after an error that leaves nothing to read; other errors are in
/// the report and the tree goes on around them.
pub(super) fn read(text: &str, report: &mut Report) -> Option<Node> {
    // The column of everything counts without the byte order mark, as editors do.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((at, c)) = forbidden_character(text) {
        report.error(Some(at), String::new(), Problem::Character(c));
        return None;
    }
    let mut builder = Builder { stack: Vec::new(), root: None, documents: 0 };
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.event(event, position(span.start), report),
            Err(error) => Err(syntax(text, &error)),
        };
        if let Err((at, problem)) = step {
            report.error(Some(at), String::new(), problem);
            return None;
        }
    }
    if builder.root.is_none() {
        report.error(Some(Position { line: 1, column: 1 }), String::new(), Problem::EmptyFile);
    }
    builder.root
}

struct Builder {
    stack: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Builder {
    fn event(
        &mut self,
        event: Event<'_>,
        at: Position,
        report: &mut Report,
    ) -> Result<(), (Position, Problem)> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((at, Problem::SecondDocument));
                }
            }
            Event::Alias(_) => {
                self.report(at, Problem::Alias, report);
                self.complete(Node { at, kind: Kind::Refused }, report);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let refused = self.decorations(at, anchor, tag.is_some(), report);
                let plain = style == ScalarStyle::Plain;
                let kind = match refused {
                    true => Kind::Refused,
                    false => Kind::Scalar { text: text.into(), plain },
                };
                self.complete(Node { at, kind }, report);
            }
            Event::SequenceStart(anchor, tag) => {
                self.decorations(at, anchor, tag.is_some(), report);
                self.open(Open::List { at, items: Vec::new() }, at)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.decorations(at, anchor, tag.is_some(), report);
                let (entries, lines) = (Vec::new(), HashMap::new());
                let map = OpenMap { at, entries, lines, key: Key::Awaited, broken: false };
                self.open(Open::Map(map), at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.stack.pop() {
                    Some(Open::List { at, items }) => Node { at, kind: Kind::List(items) },
                    Some(Open::Map(map)) if map.broken => Node { at: map.at, kind: Kind::Refused },
                    Some(Open::Map(map)) => Node { at: map.at, kind: Kind::Map(map.entries) },
                    None => return Ok(()),
                };
                self.complete(node, report);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, open: Open, at: Position) -> Result<(), (Position, Problem)> {
        if self.stack.len() == CONFIG_DEPTH {
            return Err((at, Problem::TooDeep));
        }
        self.stack.push(open);
        Ok(())
    }

    /// A finished value goes where it belongs: into a list, or a map as a key or as a value.
    fn complete(&mut self, node: Node, report: &mut Report) {
        let at = node.at;
        let refused = match self.stack.last_mut() {
            None if is_nothing(&node.kind) => None,
            None => {
                self.root = Some(node);
                None
            }
            Some(Open::List { items, .. }) => {
                items.push(node);
                None
            }
            Some(Open::Map(map)) => map.complete(node),
        };
        if let Some(problem) = refused {
            self.report(at, problem, report);
        }
    }

    /// Reports an anchor or a tag; `true` if the value is not to be read.
    fn decorations(&self, at: Position, anchor: usize, tag: bool, report: &mut Report) -> bool {
        if anchor != 0 {
            self.report(at, Problem::Anchor, report);
        }
        if tag {
            self.report(at, Problem::Tag, report);
        }
        tag || anchor != 0
    }

    fn report(&self, at: Position, problem: Problem, report: &mut Report) {
        report.error(Some(at), self.path(), problem);
    }

    /// The path of the value that is being read.
    fn path(&self) -> String {
        let steps = self.stack.iter().filter_map(|open| match open {
            Open::List { items, .. } => Some(Step::Index(items.len())),
            Open::Map(OpenMap { key: Key::Read(key, _), .. }) => Some(Step::Key(key)),
            Open::Map(_) => None,
        });
        Path::render(steps)
    }
}

impl OpenMap {
    /// Takes a key or a value, whichever is due; says why if it is no key.
    fn complete(&mut self, node: Node) -> Option<Problem> {
        match std::mem::replace(&mut self.key, Key::Awaited) {
            Key::Read(key, at) => self.entries.push(Entry { key, at, value: node }),
            Key::Refused => {}
            Key::Awaited => {
                self.key = Key::Refused;
                return self.key(node);
            }
        }
        None
    }

    fn key(&mut self, node: Node) -> Option<Problem> {
        let problem = match node.kind {
            Kind::Refused => return None,
            Kind::List(items) => match brackets(&items) {
                Some(address) => Problem::UnquotedBrackets(address),
                None => Problem::KeyShape,
            },
            Kind::Map(_) => Problem::KeyShape,
            Kind::Scalar { text, plain } => {
                let word = is_null(&text) || matches!(&*text.to_lowercase(), "true" | "false");
                match self.lines.get(&text) {
                    _ if plain && &*text == "<<" => Problem::MergeKey,
                    _ if plain && word => Problem::KeyWord(Quoted::new(&text)),
                    Some(first) => {
                        let (key, first) = (Quoted::new(&text), *first);
                        return Some(Problem::DuplicateKey { key, first });
                    }
                    None => {
                        self.lines.insert(text.clone(), node.at.line);
                        self.key = Key::Read(text, node.at);
                        return None;
                    }
                }
            }
        };
        let holds_more = matches!(problem, Problem::MergeKey | Problem::UnquotedBrackets(_));
        self.broken |= holds_more || self.entries.is_empty();
        Some(problem)
    }
}

fn is_nothing(kind: &Kind) -> bool {
    matches!(kind, Kind::Scalar { text, plain: true } if is_null(text))
}

/// What YAML calls null: no value.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

/// The first character that YAML does not allow, and where it is. (The parser takes a NUL for
/// the end of the file, which would leave the rest unread.)
fn forbidden_character(text: &str) -> Option<(Position, char)> {
    let forbidden = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    let (offset, c) = text.char_indices().find(|(_, c)| forbidden(*c))?;
    Some((end_of(text.get(..offset)?), c))
}

/// The place just behind `text`.
pub(super) fn end_of(text: &str) -> Position {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    let breaks = text.replace("\r\n", "\n").matches(['\n', '\r']).count();
    Position { line: breaks + 1, column: last.chars().count() + 1 }
}

/// What the parser could not read, in the words of this program where it is a known mistake.
fn syntax(text: &str, error: &ScanError) -> (Position, Problem) {
    let at = position(*error.marker());
    let first = at.line.saturating_sub(1).max(1);
    let around = || lines(text).zip(1..).skip(first - 1).take(at.line + 2 - first);
    for (line, number) in around() {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(column) = line.get(..indentation).and_then(|i| i.find('\t')) {
            return (Position { line: number, column: column + 1 }, Problem::Tab);
        }
        if let Some((before, address)) = unquoted_brackets(line) {
            let at = Position { line: number, column: before.chars().count() + 1 };
            return (at, Problem::UnquotedBrackets(address));
        }
    }
    let info = error.info();
    let start = lines(text).nth(at.line - 1).and_then(|line| line.chars().nth(at.column - 1));
    let problem = match start {
        Some('*') => Problem::Alias,
        Some('&') => Problem::Anchor,
        _ if info.contains("recursion") => Problem::TooDeep,
        _ => Problem::Syntax { info: printable(info, 200), hint: syntax_hint(info) },
    };
    (at, problem)
}

fn syntax_hint(info: &str) -> &'static str {
    let hints = [
        ("mapping values", "look for a missing colon above, or quote a value that has one"),
        ("expected key", "align the line with the keys it belongs to"),
        ("simple key expect", "write `KEY: VALUE`, with a colon and a space"),
        ("quoted scalar", "close the quote"),
        ("flow", "close the bracket, or add the missing comma"),
        ("tab", "indent with spaces"),
    ];
    let known = hints.iter().find(|(words, _)| info.contains(words));
    known.map_or("check indentation, colons and quotes", |(_, hint)| hint)
}

/// Lines as YAML breaks them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// `[::]:443` in a line, neither quoted nor in a comment: what is before it, and the address.
fn unquoted_brackets(line: &str) -> Option<(&str, String)> {
    let end = line.find("]:")?;
    let start = line.get(..end)?.rfind('[')?;
    let before = line.get(..start)?;
    let host = line.get(start + 1..end)?;
    let port: String = line.get(end + 2..)?.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("[{host}]:{port}");
    let quoted = before.ends_with(['"', '\'']) || before.contains('#');
    let fits = host.contains(':') && address.parse::<crate::address::Address>().is_ok();
    (!quoted && fits).then_some((before, address))
}

/// What is left of `[::]:443` when it is read as a list of one text that is then a key.
pub(super) fn brackets(items: &[Node]) -> Option<String> {
    match items {
        [Node { kind: Kind::Scalar { text, plain: true }, .. }] => {
            text.parse::<std::net::Ipv6Addr>().ok().map(|ip| format!("[{ip}]:443"))
        }
        [Node { kind: Kind::Map(entries), .. }] if colons(entries) => Some("[::]:443".to_owned()),
        _ => None,
    }
}

/// `::` read as the key `:` without a value.
pub(super) fn colons(entries: &[Entry]) -> bool {
    matches!(entries, [Entry { key, value, .. }] if &**key == ":" && is_nothing(&value.kind))
}
