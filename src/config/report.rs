//! Collects everything that is wrong or suspicious while a configuration is read.

use super::error::{Error, Errors, Hint, Position, Problem};
use super::warning::{Suspicion, Warning};
use crate::limits::CONFIG_ERRORS;

/// Errors and warnings found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Bounded by twice [`CONFIG_ERRORS`]: pruned to the first ones in the file when full.
    errors: Vec<Error>,
    more: usize,
    warnings: Vec<Warning>,
    /// Near misses looked for so far; each compares with every name there is.
    hints: usize,
}

impl Report {
    pub(super) fn error(&mut self, at: Option<Position>, path: String, problem: Problem) {
        self.errors.push(Error { at, path, problem });
        if self.errors.len() >= 2 * CONFIG_ERRORS {
            self.prune();
        }
    }

    pub(super) fn warn(&mut self, at: Option<Position>, path: String, suspicion: Suspicion) {
        self.warnings.push(Warning { at, path, suspicion });
    }

    /// A near miss, searched only as long as the answer can still be among the errors shown.
    pub(super) fn hint<'w>(
        &mut self,
        text: &str,
        words: impl Iterator<Item = &'w str> + Clone,
        otherwise: &'static str,
    ) -> Hint {
        self.hints += 1;
        if self.hints > 2 * CONFIG_ERRORS {
            return Hint::Nothing(otherwise);
        }
        Hint::new(text, words, otherwise)
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The warnings in the order of the file, or the errors if there is one.
    pub(super) fn finish(mut self, name: &str) -> Result<Vec<Warning>, Errors> {
        if !self.has_errors() {
            self.warnings.sort_by_key(|w| w.at);
            return Ok(self.warnings);
        }
        self.prune();
        Err(Errors { name: name.to_owned(), list: self.errors, more: self.more })
    }

    fn prune(&mut self) {
        self.errors.sort_by_key(|e| e.at);
        self.more += self.errors.len().saturating_sub(CONFIG_ERRORS);
        self.errors.truncate(CONFIG_ERRORS);
    }
}
