//! One thing that is wrong with a config, as a line for people.

use crate::error::Error;

/// Where something stands in the file, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub line: u64,
    pub column: u64,
}

/// `path: what (line, column); allowed: …`.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub path: String,
    pub place: Option<Place>,
    pub what: String,
    pub allowed: String,
}

impl Problem {
    fn line(&self) -> String {
        let place = match self.place {
            Some(Place { line, column }) => format!(" (line {line}, column {column})"),
            None => String::new(),
        };
        format!("{}: {}{place}; allowed: {}", self.path, self.what, self.allowed)
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Config { problems: vec![problem.line()] }
    }
}

/// Ok where nothing is wrong, else one error with all problems in the order of the file.
pub(super) fn all_or_error(mut problems: Vec<Problem>) -> Result<(), Error> {
    if problems.is_empty() {
        return Ok(());
    }
    problems.sort_by_key(|problem| (problem.place.is_none(), problem.place));
    Err(Error::Config { problems: problems.iter().map(Problem::line).collect() })
}
