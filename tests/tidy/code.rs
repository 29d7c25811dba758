//! Rust sources with comments and literals told apart from code, as far as the rules need it.

use std::ops::Range;
use std::path::Path;

/// A file of the tree.
pub struct Source {
    /// Below the top of the repository, with `/`.
    pub path: String,
    pub text: String,
    /// `text` with comments and literals blanked: same length, same lines.
    pub code: String,
    /// Where string and character literals were.
    pub literals: Vec<Range<usize>>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let (code, literals) = blank(text);
        Source { path: path.to_owned(), text: text.to_owned(), code, literals }
    }

    /// Every Rust source of the repository.
    pub fn tree(top: &Path) -> Vec<Source> {
        let mut sources = Vec::new();
        let mut folders = vec![top.join("src"), top.join("tests")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder of the tree") {
                let path = entry.expect("an entry of the tree").path();
                if path.is_dir() && !path.ends_with("target") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).expect("a source in UTF-8");
                    let path = path.strip_prefix(top).expect("below the top");
                    sources.push(Source::new(&path.to_string_lossy(), &text));
                }
            }
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        sources
    }

    /// The module directly below the crate that this file belongs to, if it is in `src/`.
    pub fn module(&self) -> Option<&str> {
        let first = self.path.strip_prefix("src/")?.split('/').next()?;
        Some(first.trim_end_matches(".rs"))
    }

    /// A file that holds nothing but tests of a module.
    pub fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// The line of a byte offset, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// The first name after each `crate::`, or after `crate::{` every name at that level.
    pub fn crate_imports(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        for at in words(&self.code, "crate::").map(|at| at + "crate::".len()) {
            let rest = &self.code[at..];
            if !rest.starts_with('{') {
                found.push((at, word_at(rest)));
                continue;
            }
            let (mut depth, mut expected) = (0, false);
            for (offset, byte) in rest.bytes().enumerate() {
                match byte {
                    b'{' => depth += 1,
                    b'}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
                let name = word_at(&rest[offset..]);
                if depth == 1 && (byte == b'{' || byte == b',') {
                    expected = true;
                } else if expected && !name.is_empty() {
                    found.push((at + offset, name));
                    expected = false;
                }
            }
        }
        found.retain(|(_, name)| !name.is_empty());
        found
    }

    /// `code` with every item under `#[cfg(test)]` blanked as well.
    pub fn code_without_tests(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        for (at, _) in self.code.match_indices("#[cfg(test)]") {
            let end = brace_end(&self.code, at).unwrap_or(at);
            blank_range(&mut code, at..end);
        }
        String::from_utf8(code).expect("only whole characters are blanked")
    }
}

/// The end of the block that the item at `at` opens; `None` if a `;` comes first.
pub fn brace_end(code: &str, at: usize) -> Option<usize> {
    let (mut depth, mut brackets) = (0usize, 0usize);
    for (offset, byte) in code[at..].bytes().enumerate() {
        match byte {
            // Not the one in `[u8; 4]`.
            b';' if depth == 0 && brackets == 0 => return None,
            b'[' => brackets += 1,
            b']' => brackets = brackets.checked_sub(1)?,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where `word` stands and is not part of a longer word.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |byte: Option<&u8>| byte.is_some_and(|&b| b.is_ascii_alphanumeric() || b == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let longer = word.as_bytes().last().is_some_and(|last| part(Some(last)));
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !(part(before) || longer && part(bytes.get(at + word.len())))
    })
}

/// The word that `text` begins with; empty if it begins with something else.
pub fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Blanks comments and literals; returns where the literals were.
fn blank(text: &str) -> (String, Vec<Range<usize>>) {
    let mut code = text.as_bytes().to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let literal = match rest {
            [b'/', b'/', ..] | [b'/', b'*', ..] => 0,
            [b'"', ..] => quoted(rest),
            [b'r', b'"' | b'#', ..] if !joined(text, at) => raw(rest),
            [b'b', b'r', b'"' | b'#', ..] if !joined(text, at) => 1 + raw(&rest[1..]),
            [b'\'', ..] => character(rest),
            _ => 0,
        };
        let length = literal.max(comment(rest));
        if literal > 0 {
            literals.push(at..at + literal);
        }
        blank_range(&mut code, at..at + length);
        at += length.max(1);
    }
    (String::from_utf8(code).expect("only whole characters are blanked"), literals)
}

/// Whether what stands at `at` continues a word.
fn joined(text: &str, at: usize) -> bool {
    text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn blank_range(code: &mut [u8], range: Range<usize>) {
    code[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Length of the comment that `rest` begins with, or 0.
fn comment(rest: &[u8]) -> usize {
    if rest.starts_with(b"//") {
        return rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }
    if !rest.starts_with(b"/*") {
        return 0;
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(rest.len())
}

/// Length of a string literal with escapes.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Length of a raw string literal, or 0 for a raw identifier.
fn raw(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &rest[2 + hashes..];
    let closed = body.windows(end.len()).position(|window| window == end);
    closed.map_or(rest.len(), |at| 2 + hashes + at + end.len())
}

/// Length of a character literal, or 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let close = rest[3.min(rest.len())..].iter().position(|&byte| byte == b'\'');
        return close.map_or(0, |at| at + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let valid = text.map_or_else(|error| error.valid_up_to(), str::len);
    let first = std::str::from_utf8(&rest[1..1 + valid]).ok().and_then(|text| text.chars().next());
    let width = first.map_or(0, char::len_utf8);
    if width > 0 && rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

#[test]
fn code_is_told_from_comments_and_literals() {
    let check = |text: &str, expected: &str| {
        let source = Source::new("src/a.rs", text);
        let squeezed = source.code.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed, expected, "{text}");
        assert_eq!(source.code.len(), text.len());
    };
    check("a // b\nc", "a c");
    check("a /* b /* c */ d */ e", "a e");
    check(r#"a "b \" c" d"#, "a d");
    check("a r#\"b \" c\"# d", "a d");
    check("a br\"b\" b\"c\" d", "a b d");
    check("a '\"' b '\\'' c 'é' d", "a b c d");
    check("fn f<'a>(b: &'a str) {}", "fn f<'a>(b: &'a str) {}");
    check("a \"// b\" c // \"d\ne", "a c e");
    check("r#type + \"b\"", "r#type +");
    check("'\\u{1F600}' a '\\\\' b", "a b");
}
