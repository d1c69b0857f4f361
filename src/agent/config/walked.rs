use std::collections::{BTreeMap, BTreeSet};

use super::model::Config;
use super::problem::{Place, Problem};

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The values of the file over those it started from.
    pub config: Config,
    /// Where each key that the file gives has its value.
    pub places: BTreeMap<&'static str, Place>,
    /// The same below keys whose names are the file's own, by path.
    pub spots: BTreeMap<String, Place>,
    /// Keys whose value was not taken: comparing others with them would only mislead.
    pub bad: BTreeSet<&'static str>,
    pub problems: Vec<Problem>,
}

impl Walked {
    pub(super) fn problem(&mut self, path: impl Into<String>, place: Option<Place>, what: String, allowed: String) {
        self.problems.push(Problem { path: path.into(), place, what, allowed });
    }

    /// One item of a list is wrong; the list as a whole is not compared with others then.
    pub(super) fn item_problem(
        &mut self,
        path: &'static str,
        number: usize,
        place: Option<Place>,
        what: String,
        allowed: &str,
    ) {
        self.bad.insert(path);
        self.problem(format!("{path}[{number}]"), place, what, allowed.to_owned());
    }
}
