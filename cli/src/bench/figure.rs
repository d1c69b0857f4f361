use serde::Serialize;

use crate::view::{Grid, Tone};

/// One figure, with its floor where it has one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figure {
    /// What was measured.
    pub figure: String,
    /// `us`, `1/s` or `bytes`.
    pub unit: &'static str,
    /// The product's.
    pub ours: f64,
    /// The least that the same work can cost.
    pub floor: Option<f64>,
    /// `ours` over `floor`.
    pub ratio: Option<f64>,
}

impl Figure {
    /// The medians of `ours` and `floor`; no figure where nothing was measured.
    pub fn of(figure: impl Into<String>, unit: &'static str, ours: &[f64], floor: &[f64]) -> Option<Self> {
        let (ours, floor) = (median(ours)?, median(floor));
        let ratio = floor.filter(|floor| *floor > 0.0).map(|floor| ours / floor);
        Some(Self { figure: figure.into(), unit, ours, floor, ratio })
    }
}

/// The value in the middle; the mean of the two where there is none.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper)) }
}

pub(super) fn print_table(figures: &[Figure]) {
    let mut grid = Grid::new(&["figure", "unit", "ours", "floor", "ratio"]);
    for figure in figures {
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| number(value, figure.unit));
        let ratio = figure.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        grid.row([
            (figure.figure.clone(), Tone::Plain),
            (figure.unit.to_owned(), Tone::Dim),
            (text(Some(figure.ours)), Tone::Plain),
            (text(figure.floor), Tone::Dim),
            (ratio, Tone::Plain),
        ]);
    }
    grid.print();
}

fn number(value: f64, unit: &str) -> String {
    if unit == "us" { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_and_one_round_that_was_disturbed_does_not_move_it() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[1.0, 900.0, 2.0]), Some(2.0));
        let figure = Figure::of("x", "us", &[4.0, 6.0, 500.0], &[3.0]).expect("measured");
        assert_eq!((figure.ours, figure.floor, figure.ratio), (6.0, Some(3.0), Some(2.0)));
        assert_eq!(Figure::of("x", "us", &[1.0], &[]).expect("measured").ratio, None);
    }
}
