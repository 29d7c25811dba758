//! From a host name to the routes that name it, or a wildcard above it.

use std::collections::HashMap;

use super::lists::{Lists, number};
use super::{HostPattern, RouteSpec};

type Keys = HashMap<Box<str>, u32, ahash::RandomState>;

/// Exact names and wildcard suffixes, each with its key in the lists.
#[derive(Debug)]
pub(super) struct Names {
    exact: Keys,
    /// Without `*.`.
    wildcard: Keys,
    /// Which numbers of labels occur among the wildcards' suffixes, one bit each: a name of 100
    /// labels does not cost 100 look-ups.
    depths: u128,
    pub(super) lists: Lists,
}

impl Names {
    pub(super) fn compile(specs: &[RouteSpec]) -> Self {
        let mut names = Names {
            exact: Keys::default(),
            wildcard: Keys::default(),
            depths: 0,
            lists: Lists::new([].into_iter(), []),
        };
        let mut lists: Vec<(&HostPattern, Vec<u32>)> = Vec::new();
        for (route, spec) in specs.iter().enumerate() {
            for pattern in &spec.sni {
                let keys = names.keys(pattern);
                let next = number(lists.len());
                let key = *keys.entry(pattern.name().into()).or_insert(next);
                if key == next {
                    lists.push((pattern, Vec::new()));
                }
                if let Some((_, list)) = lists.get_mut(key as usize)
                    && list.last() != Some(&number(route))
                {
                    list.push(number(route));
                }
            }
        }
        for suffix in names.wildcard.keys() {
            names.depths |= depth(dots(suffix) + 1);
        }
        let parent = |pattern: &HostPattern| names.wildcard_above(pattern.name());
        let lists = lists.into_iter().map(|(pattern, list)| (list, parent(pattern)));
        let lists = Lists::new(specs.iter().map(|spec| !spec.sni.is_empty()), lists);
        Names { lists, ..names }
    }

    /// The key of the narrowest pattern that `name` satisfies.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.exact.get(name).copied().or_else(|| self.wildcard_above(name))
    }

    /// The key of a pattern that was compiled.
    pub(super) fn key(&self, pattern: &HostPattern) -> Option<u32> {
        let keys = if pattern.is_wildcard() { &self.wildcard } else { &self.exact };
        keys.get(pattern.name()).copied()
    }

    fn keys(&mut self, pattern: &HostPattern) -> &mut Keys {
        if pattern.is_wildcard() { &mut self.wildcard } else { &mut self.exact }
    }

    /// The key of the longest suffix of which `name` is one or more labels more.
    fn wildcard_above(&self, name: &str) -> Option<u32> {
        if self.depths == 0 {
            return None;
        }
        let mut labels = dots(name);
        let mut rest = name;
        while let Some((_, suffix)) = rest.split_once('.') {
            if self.depths & depth(labels) != 0
                && let Some(&key) = self.wildcard.get(suffix)
            {
                return Some(key);
            }
            rest = suffix;
            labels -= 1;
        }
        None
    }
}

fn dots(name: &str) -> usize {
    name.bytes().filter(|&byte| byte == b'.').count()
}

/// The bit of a number of labels. A name has at most 127; of more there is no wildcard.
fn depth(labels: usize) -> u128 {
    u32::try_from(labels).ok().and_then(|labels| 1u128.checked_shl(labels)).unwrap_or(0)
}
