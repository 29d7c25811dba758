//! Typed reading of the tree: each reader returns `None` after it has reported what is wrong.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::document::{Kind, Node, brackets, colons, is_null};
use super::error::{Hint, Position, Problem, Quoted, printable};
use super::report::Report;
use super::units::{
    Bytes, DurationFault, PerSecond, RateFault, Short, SizeFault, parse_duration, parse_rate,
    parse_size,
};
use super::warning::Suspicion;
use crate::limits::NAME_BYTES;

/// One step from the top of the file towards a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Top,
    Key(&'a str),
    Index(usize),
}

/// Where a value is, as keys; linked upwards, so that nothing is allocated until it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl Path<'_> {
    /// Characters shown of one step.
    const SHOWN: usize = 64;

    /// Steps as a message shows them: `pools.api.backends[2]`.
    pub(super) fn render<'s>(steps: impl Iterator<Item = Step<'s>>) -> String {
        let mut path = String::new();
        for step in steps {
            match step {
                Step::Top => {}
                Step::Key(key) => {
                    let dot = if path.is_empty() { "" } else { "." };
                    let key = printable(key, Self::SHOWN);
                    // A name that would not read as one step is in quotes.
                    let plain = key.contains(|c: char| c.is_alphanumeric())
                        && !key.contains(['.', '[', ' ', ':']);
                    let quote = if plain { "" } else { "\"" };
                    let _ = write!(path, "{dot}{quote}{key}{quote}");
                }
                Step::Index(index) => {
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        path
    }

    fn text(&self) -> String {
        let mut steps = vec![self.step];
        let mut path = self;
        while let Some(parent) = path.parent {
            steps.push(parent.step);
            path = parent;
        }
        Path::render(steps.into_iter().rev())
    }
}

/// A value, where it is in the file, and how it got there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    node: &'a Node,
    path: Path<'a>,
}

impl<'a> Value<'a> {
    pub(super) fn top(node: &'a Node) -> Self {
        Value { node, path: Path { parent: None, step: Step::Top } }
    }

    pub(super) fn at(&self) -> Position {
        self.node.at
    }

    pub(super) fn error(&self, problem: impl Into<Problem>, report: &mut Report) {
        report.error(Some(self.node.at), self.path.text(), problem.into());
    }

    pub(super) fn warn(&self, suspicion: Suspicion, report: &mut Report) {
        report.warn(Some(self.node.at), self.path.text(), suspicion);
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.node.kind, Kind::Map(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.kind, Kind::List(_))
    }

    /// `off`, which YAML's `false` means too.
    pub(super) fn is_off(&self) -> bool {
        matches!(&self.node.kind, Kind::Scalar { text, plain }
            if &**text == "off" || *plain && &**text == "false")
    }

    /// `Some(None)` is `off`; anything else is what `read` makes of it.
    pub(super) fn off_or<T>(
        self,
        report: &mut Report,
        read: impl FnOnce(Self, &mut Report) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.is_off() {
            return Some(None);
        }
        if self.meant_off(report) {
            return None;
        }
        read(self, report).map(Some)
    }

    /// Reports a word that others use for `off`; `true` if it is one.
    pub(super) fn meant_off(&self, report: &mut Report) -> bool {
        let Kind::Scalar { text, .. } = &self.node.kind else { return false };
        let words = ["no", "none", "never", "disabled", "disable", "off", "false"];
        let meant = words.contains(&&*text.to_lowercase());
        if meant {
            self.error(Problem::MeantOff { text: Quoted::new(text) }, report);
        }
        meant
    }

    /// The value of a key, if this is a map that has it. Nothing is reported.
    pub(super) fn key(&self, key: &'static str) -> Option<Value<'_>> {
        let Kind::Map(entries) = &self.node.kind else { return None };
        let entry = entries.iter().find(|entry| &*entry.key == key)?;
        let path = Path { parent: Some(&self.path), step: Step::Key(key) };
        Some(Value { node: &entry.value, path })
    }

    /// A map with known keys; unknown ones are reported.
    pub(super) fn table(
        &self,
        keys: &'static [&'static str],
        expected: &'static str,
        report: &mut Report,
    ) -> Option<Table<'a>> {
        let Kind::Map(entries) = &self.node.kind else {
            self.wrong_shape(expected, report);
            return None;
        };
        let mut meant = Vec::new();
        let unknown = entries.iter().filter(|entry| !keys.contains(&&*entry.key));
        for entry in unknown {
            let hint = report.hint(&entry.key, keys.iter().copied(), "remove it");
            if let Hint::DidYouMean(word) = &hint {
                meant.push(word.clone());
            }
            let path = Path { parent: Some(&self.path), step: Step::Key(&entry.key) };
            let problem = Problem::UnknownKey { key: Quoted::new(&entry.key), hint };
            report.error(Some(entry.at), path.text(), problem);
        }
        Some(Table { value: *self, keys, meant })
    }

    /// A map whose keys are names; names that cannot be are reported and left out.
    pub(super) fn named(&self, expected: &'static str, report: &mut Report) -> Vec<Named<'_>> {
        let Kind::Map(entries) = &self.node.kind else {
            self.wrong_shape(expected, report);
            return Vec::new();
        };
        if entries.is_empty() {
            self.error(Problem::Empty { expected }, report);
        }
        let mut named = Vec::new();
        for entry in entries {
            let path = Path { parent: Some(&self.path), step: Step::Key(&entry.key) };
            if let Some(problem) = name_problem(&entry.key) {
                report.error(Some(entry.at), path.text(), problem);
            }
            let value = Value { node: &entry.value, path };
            named.push(Named { name: &entry.key, at: entry.at, value });
        }
        named
    }

    /// A list, not empty.
    pub(super) fn items(&self, expected: &'static str, report: &mut Report) -> Vec<Value<'_>> {
        let Kind::List(nodes) = &self.node.kind else {
            self.wrong_shape(expected, report);
            return Vec::new();
        };
        if nodes.is_empty() {
            self.error(Problem::Empty { expected }, report);
        }
        let path = |index| Path { parent: Some(&self.path), step: Step::Index(index) };
        nodes.iter().enumerate().map(|(i, node)| Value { node, path: path(i) }).collect()
    }

    /// A scalar with a value, as written.
    pub(super) fn text(&self, expected: &'static str, report: &mut Report) -> Option<&'a str> {
        match &self.node.kind {
            Kind::Scalar { text, plain } if !(*plain && is_null(text)) => Some(text),
            _ => {
                self.wrong_shape(expected, report);
                None
            }
        }
    }

    /// A whole number.
    pub(super) fn integer(
        &self,
        range: RangeInclusive<u64>,
        expected: &'static str,
        example: &'static str,
        report: &mut Report,
    ) -> Option<u64> {
        let text = self.text(expected, report)?;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let quoted = Quoted::new(text);
        let number = text.parse::<u64>().ok();
        let problem = match number {
            _ if !digits => Problem::Value { text: quoted, expected, example },
            _ if self.is_quoted() => Problem::QuotedValue { text: quoted, expected },
            Some(plain) if text.starts_with('0') && text != "0" => {
                Problem::LeadingZero { text: quoted, plain }
            }
            Some(number) if range.contains(&number) => return Some(number),
            _ => Problem::Range { text: quoted, min: *range.start(), max: *range.end() },
        };
        self.error(problem, report);
        None
    }

    /// A number with at most three decimals, in thousandths. The range is in whole numbers.
    pub(super) fn thousandths(
        &self,
        range: RangeInclusive<u64>,
        expected: &'static str,
        example: &'static str,
        report: &mut Report,
    ) -> Option<u32> {
        let text = self.text(expected, report)?;
        let quoted = Quoted::new(text);
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let padded = whole.len() > 1 && whole.starts_with('0');
        let number = || format!("{whole}{decimals:0<3}").parse::<u64>().ok();
        let problem = match number() {
            _ if !digits(whole) || !digits(decimals) || decimals.len() > 3 || padded => {
                Problem::Value { text: quoted, expected, example }
            }
            _ if self.is_quoted() => Problem::QuotedValue { text: quoted, expected },
            Some(number) if (range.start() * 1000..=range.end() * 1000).contains(&number) => {
                return u32::try_from(number).ok();
            }
            _ => Problem::Range { text: quoted, min: *range.start(), max: *range.end() },
        };
        self.error(problem, report);
        None
    }

    pub(super) fn boolean(&self, report: &mut Report) -> Option<bool> {
        let text = self.text("`true` or `false`", report)?;
        match text {
            "true" if !self.is_quoted() => Some(true),
            "false" if !self.is_quoted() => Some(false),
            _ => {
                let text = Quoted::new(text);
                let problem = match self.is_quoted() {
                    true => Problem::QuotedValue { text, expected: "`true` or `false`" },
                    false => Problem::Boolean { text },
                };
                self.error(problem, report);
                None
            }
        }
    }

    /// A duration within `range`.
    pub(super) fn duration(
        &self,
        range: RangeInclusive<Duration>,
        report: &mut Report,
    ) -> Option<Duration> {
        let text = self.text("a duration", report)?;
        let (min, max) = (Short(*range.start()), Short(*range.end()));
        let out_of_range = || DurationFault::Range(Quoted::new(text), min, max);
        let fault = match parse_duration(text) {
            Ok(duration) if range.contains(&duration) => return Some(duration),
            Ok(_) | Err(DurationFault::Range(..)) => out_of_range(),
            Err(fault) => fault,
        };
        self.error(fault, report);
        None
    }

    /// A size in bytes within `range`.
    pub(super) fn size(&self, range: RangeInclusive<usize>, report: &mut Report) -> Option<usize> {
        let text = self.text("a size", report)?;
        let (min, max) = (Bytes(*range.start() as u64), Bytes(*range.end() as u64));
        let out_of_range = || SizeFault::Range(Quoted::new(text), min, max);
        let fault = match parse_size(text) {
            Ok(size) => match usize::try_from(size).ok().filter(|size| range.contains(size)) {
                Some(size) => return Some(size),
                None => out_of_range(),
            },
            Err(SizeFault::Range(..)) => out_of_range(),
            Err(fault) => fault,
        };
        self.error(fault, report);
        None
    }

    /// Something a second, within `range`.
    pub(super) fn rate(&self, range: RangeInclusive<u32>, report: &mut Report) -> Option<u32> {
        let text = self.text("a rate", report)?;
        let (min, max) = (PerSecond(*range.start()), PerSecond(*range.end()));
        let out_of_range = || RateFault::Range(Quoted::new(text), min, max);
        let fault = match parse_rate(text) {
            Ok(rate) if range.contains(&rate) => return Some(rate),
            Ok(_) | Err(RateFault::Range(..)) => out_of_range(),
            Err(fault) => fault,
        };
        self.error(fault, report);
        None
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &self,
        what: &'static str,
        choices: &[(&'static str, T)],
        report: &mut Report,
    ) -> Option<T> {
        let text = self.text("a single word", report)?;
        if let Some((_, chosen)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*chosen);
        }
        let hint = report.hint(text, choices.iter().map(|(name, _)| *name), "");
        self.error(Problem::Choice { text: Quoted::new(text), what, hint }, report);
        None
    }

    fn is_quoted(&self) -> bool {
        matches!(self.node.kind, Kind::Scalar { plain: false, .. })
    }

    fn wrong_shape(&self, expected: &'static str, report: &mut Report) {
        let problem = match &self.node.kind {
            Kind::Refused => return,
            Kind::Scalar { text, plain: true } if is_null(text) => Problem::NoValue { expected },
            Kind::Scalar { text, .. } => Problem::Single { text: Quoted::new(text), expected },
            Kind::Map(entries) if colons(entries) => {
                Problem::UnquotedBrackets("[::]:443".to_owned())
            }
            Kind::Map(_) => Problem::Shape { found: "a map", expected },
            Kind::List(items) => match brackets(items) {
                Some(address) => Problem::UnquotedBrackets(address),
                None => Problem::Shape { found: "a list", expected },
            },
        };
        self.error(problem, report);
    }
}

/// An entry of a map whose keys are names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    /// Of the name.
    pub(super) at: Position,
    pub(super) value: Value<'a>,
}

impl Named<'_> {
    /// Reports a key that is missing, at the name of what lacks it.
    pub(super) fn missing(&self, key: &'static str, example: &'static str, report: &mut Report) {
        self.error(Problem::Missing { key, example }, report);
    }

    /// Reports something of the whole, at its name.
    pub(super) fn error(&self, problem: Problem, report: &mut Report) {
        report.error(Some(self.at), self.value.path.text(), problem);
    }

    /// Warns of the whole, at its name.
    pub(super) fn warn(&self, suspicion: Suspicion, report: &mut Report) {
        report.warn(Some(self.at), self.value.path.text(), suspicion);
    }
}

/// A map with known keys.
#[derive(Debug)]
pub(super) struct Table<'a> {
    value: Value<'a>,
    keys: &'static [&'static str],
    /// Known keys that unknown ones were taken for.
    meant: Vec<String>,
}

impl Table<'_> {
    /// The value of a key, if the map has it.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'_>> {
        debug_assert!(self.keys.contains(&key), "`{key}` is read but not a known key");
        self.value.key(key)
    }

    /// Whether a key is absent, and no unknown key was taken for it.
    pub(super) fn lacks(&self, key: &'static str) -> bool {
        self.get(key).is_none() && !self.meant.iter().any(|meant| meant == key)
    }

    /// The value of a key through `read`; `default` where the key is absent or wrong.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        default: T,
        read: impl FnOnce(Value<'_>) -> Option<T>,
    ) -> T {
        self.get(key).and_then(read).unwrap_or(default)
    }
}

/// Why `name` cannot name a listener, a pool or a backend.
pub(super) fn name_problem(name: &str) -> Option<Problem> {
    match name {
        "" => Some(Problem::NameEmpty),
        "." | ".." => Some(Problem::NameDots(Quoted::new(name))),
        _ if name.len() > NAME_BYTES => Some(Problem::NameLong),
        _ if name.contains('/') => Some(Problem::NameSlash(Quoted::new(name))),
        _ if name.chars().any(char::is_control) => Some(Problem::NameControl(Quoted::new(name))),
        _ => None,
    }
}
