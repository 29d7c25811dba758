//! YAML text to a tree in which everything knows its place.
//!
//! Built from the events of a YAML 1.2 parser, without its types: a scalar stays the text it was
//! written as, and only the key it belongs to decides what it means. So `no`, `0443` or `22:22`
//! are never anything but those characters. What YAML has beyond maps, lists and scalars
//! (anchors, tags, merge keys, several documents) is refused here, each with its place.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::error::{Position, Problem, Quoted};
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
    Map { at: Position, entries: Vec<Entry>, lines: HashMap<Box<str>, usize>, key: Key },
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
            let path = if builder.stack.is_empty() { String::new() } else { builder.path() };
            let path = if matches!(problem, Problem::TooDeep) { String::new() } else { path };
            report.error(Some(at), path, problem);
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
                self.open(Open::List { at, items: Vec::new() })?;
            }
            Event::MappingStart(anchor, tag) => {
                self.decorations(at, anchor, tag.is_some(), report);
                let (entries, lines) = (Vec::new(), HashMap::new());
                self.open(Open::Map { at, entries, lines, key: Key::Awaited })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.stack.pop() {
                    Some(Open::List { at, items }) => Node { at, kind: Kind::List(items) },
                    Some(Open::Map { at, entries, .. }) => Node { at, kind: Kind::Map(entries) },
                    None => return Ok(()),
                };
                self.complete(node, report);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, open: Open) -> Result<(), (Position, Problem)> {
        let (Open::List { at, .. } | Open::Map { at, .. }) = open;
        if self.stack.len() == CONFIG_DEPTH {
            return Err((at, Problem::TooDeep));
        }
        self.stack.push(open);
        Ok(())
    }

    /// A finished value goes where it belongs: into a list, or a map as a key or as a value.
    fn complete(&mut self, node: Node, report: &mut Report) {
        match self.stack.last_mut() {
            None if is_nothing(&node.kind) => {}
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, .. }) => match std::mem::replace(key, Key::Awaited) {
                Key::Read(key, at) => entries.push(Entry { key, at, value: node }),
                Key::Refused => {}
                Key::Awaited => {
                    let read = self.key(node, report);
                    if let Some(Open::Map { key, .. }) = self.stack.last_mut() {
                        *key = read;
                    }
                }
            },
        }
    }

    fn key(&mut self, node: Node, report: &mut Report) -> Key {
        let at = node.at;
        let problem = match node.kind {
            Kind::Refused => return Key::Refused,
            Kind::List(items) => match brackets(&items) {
                Some(address) => Problem::UnquotedBrackets(address),
                None => Problem::KeyShape,
            },
            Kind::Map(_) => Problem::KeyShape,
            Kind::Scalar { text, plain } => {
                let word = ["", "~", "null", "true", "false"].contains(&&*text.to_lowercase());
                let Some(Open::Map { lines, .. }) = self.stack.last_mut() else {
                    return Key::Refused;
                };
                match lines.get(&text) {
                    _ if plain && &*text == "<<" => Problem::MergeKey,
                    _ if plain && word => Problem::KeyWord(Quoted::new(&text)),
                    Some(first) => Problem::DuplicateKey { key: Quoted::new(&text), first: *first },
                    None => {
                        lines.insert(text.clone(), at.line);
                        return Key::Read(text, at);
                    }
                }
            }
        };
        self.report(at, problem, report);
        Key::Refused
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
            Open::Map { key: Key::Read(key, _), .. } => Some(Step::Key(key)),
            Open::Map { .. } => None,
        });
        Path::render(steps)
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
    let lines = || text.split(['\n', '\r']).filter(|_| true);
    let around =
        || lines().skip(at.line.saturating_sub(2)).take(2).zip(at.line.saturating_sub(1)..);
    for (line, number) in around() {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        let tab = line.get(..indentation).and_then(|i| i.find('\t'));
        if let Some(column) = tab {
            return (Position { line: number.max(1), column: column + 1 }, Problem::Tab);
        }
        if let Some((column, address)) = unquoted_brackets(line) {
            let column = line.get(..column).unwrap_or_default().chars().count() + 1;
            let at = Position { line: number.max(1), column };
            return (at, Problem::UnquotedBrackets(address));
        }
    }
    (at, Problem::Syntax(super::error::printable(error.info(), 200)))
}

/// `[::]:443` in a line, where no quote stands before it.
fn unquoted_brackets(line: &str) -> Option<(usize, String)> {
    let start = line.find('[')?;
    let rest = line.get(start..)?;
    let inner_start = rest.rfind('[')?;
    let rest = rest.get(inner_start..)?;
    let end = rest.find("]:")?;
    let host = rest.get(1..end)?;
    let port: String = rest.get(end + 2..)?.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("[{host}]:{port}");
    let quoted = line.get(..start + inner_start)?.ends_with(['"', '\'']);
    (!quoted && host.contains(':') && address.parse::<crate::address::Address>().is_ok())
        .then_some((start + inner_start, address))
}

/// `[::]` read as a list of one text, and then used as a key: the start of `[::]:443`.
pub(super) fn brackets(items: &[Node]) -> Option<String> {
    match items {
        [Node { kind: Kind::Scalar { text, plain: true }, .. }] => {
            text.parse::<std::net::Ipv6Addr>().ok().map(|ip| format!("[{ip}]:443"))
        }
        _ => None,
    }
}
