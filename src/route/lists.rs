//! Ascending lists of routes by key, and the next route at or behind a place.

/// Of no list, no route.
const NONE: u32 = u32::MAX;

/// One kind of condition (names, or sources) over all routes of a listener.
#[derive(Debug)]
pub(super) struct Lists {
    /// For every route, and one place behind them: the first at or behind it without condition of
    /// this kind.
    unconditional: Box<[u32]>,
    keys: Box<[Key]>,
    /// The lists, one behind the other.
    routes: Box<[u32]>,
}

/// A key's list, and the key of what contains it.
#[derive(Debug)]
struct Key {
    start: u32,
    end: u32,
    /// The narrowest wider key, or [`NONE`]: what satisfies this key satisfies that one too.
    parent: u32,
}

impl Lists {
    /// `conditional` says of each route whether it has conditions of this kind; `keys` has the
    /// routes of each key, ascending, and the parent.
    pub(super) fn new(
        conditional: impl DoubleEndedIterator<Item = bool>,
        keys: impl IntoIterator<Item = (Vec<u32>, Option<u32>)>,
    ) -> Self {
        let conditional: Vec<bool> = conditional.collect();
        let mut unconditional = vec![NONE];
        let mut next = NONE;
        for (index, conditional) in conditional.iter().enumerate().rev() {
            next = if *conditional { next } else { number(index) };
            unconditional.push(next);
        }
        unconditional.reverse();
        let mut routes = Vec::new();
        let keys = keys.into_iter().map(|(list, parent)| {
            let start = number(routes.len());
            routes.extend(list);
            Key { start, end: number(routes.len()), parent: parent.unwrap_or(NONE) }
        });
        let keys = keys.collect();
        Lists { unconditional: unconditional.into(), keys, routes: routes.into() }
    }

    /// The first route at or behind `from` whose condition `key` satisfies; `None` satisfies only
    /// routes without condition.
    pub(super) fn next(&self, key: Option<u32>, from: u32) -> Option<u32> {
        let mut first = self.unconditional.get(from as usize).copied().unwrap_or(NONE);
        let mut key = key.unwrap_or(NONE);
        while let Some(&Key { start, end, parent }) = self.keys.get(key as usize) {
            let list = self.routes.get(start as usize..end as usize).unwrap_or_default();
            let behind = list.partition_point(|&route| route < from);
            if let Some(&route) = list.get(behind) {
                first = first.min(route);
            }
            key = parent;
        }
        (first != NONE).then_some(first)
    }
}

/// Indices fit: a configuration file has at most [`crate::limits::CONFIG_BYTES`].
pub(super) fn number(index: usize) -> u32 {
    u32::try_from(index).expect("routes and keys are fewer than bytes of a file, which is bounded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_of_a_key_its_parents_and_the_unconditional() {
        let conditional = [true, true, false, true, true].into_iter();
        let keys = [(vec![1, 4], Some(1)), (vec![3], None), (vec![], Some(1))];
        let lists = Lists::new(conditional, keys);
        let check = |key, expected: [Option<u32>; 7]| {
            let found: Vec<_> = (0..7).map(|from| lists.next(key, from)).collect();
            assert_eq!(found, expected, "{key:?}");
        };
        let (two, three, four) = (Some(2), Some(3), Some(4));
        check(None, [two, two, two, None, None, None, None]);
        check(Some(0), [Some(1), Some(1), two, three, four, None, None]);
        check(Some(1), [two, two, two, three, None, None, None]);
        check(Some(2), [two, two, two, three, None, None, None]);
    }

    #[test]
    fn no_routes() {
        let lists = Lists::new([].into_iter(), []);
        assert_eq!(lists.next(None, 0), None);
    }
}
