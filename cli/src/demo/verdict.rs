//! Things that have to hold, and how they are shown.

use serde::Serialize;

use crate::view::{Grid, Tone};

/// What a run leaves behind, held against what is promised.
pub(super) trait Proof {
    /// The result for programs.
    type Summary: Serialize;

    /// Shows it to people. True where everything holds.
    fn print(&self) -> bool;

    /// Whether everything holds, and the result for programs.
    fn for_programs(&self) -> (bool, Self::Summary);

    /// What does not hold, one line each.
    fn failures(&self) -> Vec<String>;
}

/// One thing that has to hold.
pub(super) struct Check {
    pub what: &'static str,
    pub counted: String,
    pub wanted: String,
    pub ok: bool,
}

pub(super) fn equal(what: &'static str, counted: u64, wanted: u64) -> Check {
    Check { what, counted: counted.to_string(), wanted: wanted.to_string(), ok: counted == wanted }
}

pub(super) fn least(what: &'static str, counted: u64, wanted: u64) -> Check {
    Check { what, counted: counted.to_string(), wanted: format!("at least {wanted}"), ok: counted >= wanted }
}

pub(super) fn most(what: &'static str, counted: u64, wanted: u64) -> Check {
    Check { what, counted: counted.to_string(), wanted: format!("at most {wanted}"), ok: counted <= wanted }
}

/// The table for people.
pub(super) fn print(checks: &[Check]) {
    let mut grid = Grid::new(&["invariant", "counted", "wanted", "ok"]);
    for check in checks {
        let (word, tone) = if check.ok { ("yes", Tone::Good) } else { ("NO", Tone::Bad) };
        grid.row([
            (check.what.to_owned(), Tone::Plain),
            (check.counted.clone(), if check.ok { Tone::Plain } else { Tone::Bad }),
            (check.wanted.clone(), Tone::Dim),
            (word.to_owned(), tone),
        ]);
    }
    grid.print();
}

/// What does not hold, one line each.
pub(super) fn failures(checks: &[Check]) -> impl Iterator<Item = String> {
    let failed = checks.iter().filter(|check| !check.ok);
    failed.map(|check| format!("{}: {}, wanted {}", check.what, check.counted, check.wanted))
}
