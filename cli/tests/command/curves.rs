//! `maitred curves` (SEL-8) and what stands in `docs/load-balancing.md`: an operator picks a curve by its shape, and reads
//! the defaults off a table. `MAITRED_WRITE_CURVES=1 cargo test -p maitred-cli --test command curves` writes both, every other run compares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred::agent::config::Config;
use maitred::select::Curve;

const BEGIN: &str = "<!-- defaults: made by cli/tests/command/curves.rs -->\n";
const END: &str = "<!-- end of defaults -->\n";

fn docs() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("docs")
}

fn is_writing() -> bool {
    std::env::var_os("MAITRED_WRITE_CURVES").is_some()
}

fn curves(out: &Path, more: &[&str]) -> String {
    let mut command = Command::new(maitred_testkit::program::maitred());
    for name in ["MAITRED_STORE", "MAITRED_ZONE", "MAITRED_NODE_ID", "MAITRED_NODE_ADDR"] {
        command.env_remove(name);
    }
    let output = command.args(["curves", "--out"]).arg(out).args(more).output().expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn pictures(dir: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("UTF-8"))
    };
    files.map(|file| read(file.expect("readable").path())).collect()
}

fn table() -> String {
    let mut text = "| metric | source | weight | from | to | curve |\n|---|---|---|---|---|---|\n".to_owned();
    for (name, rule) in &Config::default().selector.metrics {
        let row = [
            format!("`{name}`"),
            format!("`{}`", rule.source.name()),
            rule.weight.to_string(),
            rule.min.to_string(),
            rule.max.to_string(),
            rule.curve.to_string(),
        ];
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

#[test]
fn sel_8_the_pictures_in_the_docs_are_those_that_the_command_draws() {
    let dir = tempfile::tempdir().expect("a directory");
    let told = curves(&dir.path().join("new"), &["--json"]);
    let drawn = pictures(&dir.path().join("new"));
    let metrics = Config::default().selector.metrics;
    assert_eq!(drawn.len(), Curve::ALL.len() + metrics.len());
    assert!(drawn.keys().all(|name| told.contains(&format!("\"{name}\""))), "{told}");
    let there = docs().join("curves");
    if is_writing() {
        let _ = std::fs::remove_dir_all(&there);
        std::fs::create_dir_all(&there).expect("a directory");
        for (name, text) in &drawn {
            std::fs::write(there.join(name), text).expect("written");
        }
    }
    let kept = pictures(&there);
    assert_eq!(kept.keys().collect::<Vec<_>>(), drawn.keys().collect::<Vec<_>>());
    for (name, text) in &drawn {
        assert!(
            kept[name] == *text,
            "docs/curves/{name} is stale: MAITRED_WRITE_CURVES=1 cargo test -p maitred-cli --test command curves"
        );
    }
}

#[test]
fn sel_8_the_guide_shows_every_picture_and_the_defaults_as_they_are() {
    let path = docs().join("load-balancing.md");
    let text = std::fs::read_to_string(&path).expect("the guide");
    let (before, rest) = text.split_once(BEGIN).expect("where the table begins");
    let (kept, after) = rest.split_once(END).expect("where the table ends");
    if is_writing() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).expect("written");
    } else {
        assert_eq!(kept, table(), "MAITRED_WRITE_CURVES=1 cargo test -p maitred-cli --test command curves");
    }
    let metrics = Config::default().selector.metrics.into_keys().map(|name| format!("metric-{name}"));
    for name in Curve::ALL.map(|curve| curve.name().to_owned()).into_iter().chain(metrics) {
        assert!(text.contains(&format!("(curves/{name}.svg)")), "{name} is not shown");
    }
}

#[test]
fn sel_8_the_metrics_of_a_config_are_drawn_with_its_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("network.yml");
    let own =
        "{ source: tps1m, weight: 2, normalize: { min: 10, max: 20 }, invert: true, curve: { type: power, p: 3 } }";
    std::fs::write(&config, format!("selector: {{ metrics: {{ tps: {own} }} }}\n")).expect("written");
    let told = curves(dir.path(), &["--config", &config.display().to_string()]);
    assert!(told.starts_with("wrote 15 pictures to "), "{told}");
    let drawn = pictures(dir.path());
    let picture = &drawn["metric-tps.svg"];
    for part in ["tps: weight 2, power, p 3", ">tps1m</text>", ">12.5</text>", "points=\"64.0,44.0 "] {
        assert!(picture.contains(part), "{part} is not in {picture}");
    }
}
