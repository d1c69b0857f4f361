use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::LineName;

/// The lines that this node admits players of. Its heartbeats say so, for operators: nothing is decided by it.
#[derive(Debug, Default)]
pub(in crate::agent) struct Admitting {
    lines: Mutex<BTreeSet<LineName>>,
}

/// One line's admitter. Gone with it.
#[derive(Debug)]
pub(in crate::agent) struct Part<'a> {
    admitting: &'a Admitting,
    line: &'a LineName,
}

impl Admitting {
    fn lines(&self) -> MutexGuard<'_, BTreeSet<LineName>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines, blanks between; none where there are none.
    pub fn label(&self) -> Option<String> {
        let lines = self.lines();
        (!lines.is_empty()).then(|| lines.iter().map(LineName::as_str).collect::<Vec<_>>().join(" "))
    }

    /// The part of an admitter that has not been of use yet.
    pub fn part<'a>(&'a self, line: &'a LineName) -> Part<'a> {
        Part { admitting: self, line }
    }
}

impl Part<'_> {
    /// Whether the last round could have admitted somebody.
    pub fn works(&self, works: bool) {
        let mut lines = self.admitting.lines();
        if !works {
            lines.remove(self.line);
        } else if !lines.contains(self.line) {
            lines.insert(self.line.clone());
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.works(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // QUE-12: an admitter that ended and still shows sends the operator to look elsewhere.
    #[test]
    fn que_12_an_admitter_shows_while_it_works() {
        let admitting = Admitting::default();
        let [login, vip] = ["login", "vip"].map(|name| LineName::new(name).expect("a name"));
        let (first, second) = (admitting.part(&vip), admitting.part(&login));
        assert_eq!(admitting.label(), None);
        first.works(true);
        second.works(true);
        assert_eq!(admitting.label().as_deref(), Some("login vip"));
        second.works(false);
        assert_eq!(admitting.label().as_deref(), Some("vip"));
        drop(first);
        assert_eq!(admitting.label(), None);
    }
}
