//! A plot of one line over a grid of quarters, as SVG text.

use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;
/// Where the field begins and ends.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 456.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 264.0;
/// Pieces that the line is made of.
const PIECES: u32 = 196;
/// A jump from one point to the next that is drawn as one and not as a slope.
const JUMP: f64 = 0.5;

/// One line in a field from 0 to 1 both ways.
#[derive(Debug)]
pub(super) struct Plot {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// What stands at the ends of the horizontal axis.
    pub ends: (f64, f64),
    pub points: Vec<(f64, f64)>,
}

/// Points of `line` from 0 to 1.
pub(super) fn sample(line: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for piece in 0..=PIECES {
        let x = f64::from(piece) / f64::from(PIECES);
        let y = line(x);
        if let Some((_, before)) = points.last().copied()
            && (y - before).abs() > JUMP
        {
            points.push((x, before));
        }
        points.push((x, y));
    }
    points
}

fn across(x: f64) -> f64 {
    LEFT + x * (RIGHT - LEFT)
}

fn down(y: f64) -> f64 {
    BOTTOM - y * (BOTTOM - TOP)
}

/// A number with as many digits as it needs, three at most behind the point.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Plot {
    /// The picture.
    pub(super) fn draw(&self) -> String {
        let mut out = String::new();
        // Writing to a text does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let title = escaped(&self.title);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#24292f\">"
        )?;
        writeln!(out, "<title>{title}</title>")?;
        writeln!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>")?;
        let middle = across(0.5);
        writeln!(out, "<text x=\"{middle}\" y=\"26\" text-anchor=\"middle\" font-size=\"15\">{title}</text>")?;
        for quarter in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let (x, y) = (across(quarter), down(quarter));
            let stroke = if quarter > 0.0 { "#d0d7de" } else { "#24292f" };
            writeln!(out, "<path d=\"M{x} {TOP}V{BOTTOM}M{LEFT} {y}H{RIGHT}\" stroke=\"{stroke}\" fill=\"none\"/>")?;
            let (low, high) = self.ends;
            let value = short(low + quarter * (high - low));
            writeln!(out, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{value}</text>", BOTTOM + 18.0)?;
            let (left, base) = (LEFT - 8.0, y + 4.0);
            writeln!(out, "<text x=\"{left}\" y=\"{base}\" text-anchor=\"end\">{}</text>", short(quarter))?;
        }
        let (x_label, y_label) = (escaped(&self.x_label), escaped(&self.y_label));
        writeln!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>", HEIGHT - 14.0)?;
        let centre = down(0.5);
        writeln!(
            out,
            "<text x=\"18\" y=\"{centre}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {centre})\">{y_label}</text>"
        )?;
        let points: Vec<String> =
            self.points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), down(*y))).collect();
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#0969da\" stroke-width=\"2.5\" stroke-linejoin=\"round\"/>",
            points.join(" ")
        )?;
        writeln!(out, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_8_a_jump_is_drawn_upright_and_texts_cannot_break_the_picture() {
        let points = sample(|x| f64::from(u8::from(x >= 0.5)));
        assert!(points.windows(3).any(|three| matches!(three, [(_, a), (b, c), (d, e)]
            if a == c && b == d && *c == 0.0 && *e == 1.0)));
        let plot = Plot {
            title: "<b> & c".to_owned(),
            x_label: String::new(),
            y_label: String::new(),
            ends: (0.0, 20.5),
            points,
        };
        let text = plot.draw();
        assert!(text.contains("&lt;b&gt; &amp; c") && text.contains(">20.5</text>") && text.contains(">5.125</text>"));
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
