//! `maitred curves`: every curve, and every metric of the config, as a picture.

mod svg;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Failure;
use super::context::Context;
use super::view;
use maitred::select::{Curve, MetricSource, Rule};
use svg::Plot;

/// Options of this command.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Directory to write to; made where it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let dir = options.out;
    std::fs::create_dir_all(&dir).map_err(|error| Failure::io(&format!("making {}", dir.display()), &error))?;
    let mut files = Vec::new();
    for curve in Curve::ALL {
        files.push(write(&dir, curve.name(), &of_curve(curve))?);
    }
    for (name, rule) in &context.config.selector.metrics {
        files.push(write(&dir, &format!("metric-{name}"), &of_metric(name, rule))?);
    }
    if context.json {
        view::json(&json!({ "ok": true, "dir": dir.display().to_string(), "files": files }));
    } else {
        view::line(&format!("wrote {} to {}", view::counted(files.len(), "picture"), dir.display()));
    }
    Ok(())
}

fn write(dir: &Path, name: &str, plot: &Plot) -> Result<String, Failure> {
    let file = format!("{name}.svg");
    let path = dir.join(&file);
    std::fs::write(&path, plot.draw()).map_err(|error| Failure::io(&format!("writing {}", path.display()), &error))?;
    Ok(file)
}

fn of_curve(curve: Curve) -> Plot {
    Plot {
        title: curve.to_string(),
        x_label: "normalised value: 0 best, 1 worst".to_owned(),
        y_label: "cost".to_owned(),
        ends: (0.0, 1.0),
        points: svg::sample(|x| curve.at(x)),
    }
}

/// Over the values as they are published, so that an operator can read off what theirs cost.
fn of_metric(name: &str, rule: &Rule) -> Plot {
    let growing = rule.source == MetricSource::RecentPicks;
    Plot {
        title: format!("{name}: weight {}, {}", rule.weight, rule.curve),
        x_label: format!("{}{}", rule.source.name(), if growing { ", as long as nobody has more" } else { "" }),
        y_label: "cost, before its weight".to_owned(),
        ends: (rule.min, rule.max),
        points: svg::sample(|x| rule.curve.at(rule.normalise(Some(rule.min + x * (rule.max - rule.min))))),
    }
}
