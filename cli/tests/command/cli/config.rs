use std::fs;
use std::path::Path;

use serde_json::json;

use crate::fixtures::command::{maitred, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

// POL-1: every problem at once, each with the place and what would be right.
#[test]
fn pol_1_a_bad_file_is_told_with_every_path_and_the_allowed_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("network.yml");
    fs::write(&file, "zone: \"a b\"\nenabled: 3\ntokens: {ttlMs: 1}\nstoer: {}\n").expect("a file");
    let ran = run(maitred(&["config", "check", text(&file)])).code(2).shows(&[
        "zone: does not fit (line 1, column 7); allowed:",
        "1 to 64 characters",
        "enabled: expected true or false",
        "tokens.ttlMs: ",
        "200 to 600000",
        "stoer: ",
        "4 problems",
    ]);
    assert!(ran.err.is_empty(), "{ran:?}");
    let told = run(maitred(&["config", "check", "--json", text(&file)])).code(2).json();
    assert_eq!((&told["ok"], told["problems"].as_array().map(Vec::len)), (&json!(false), Some(4)));
    run(maitred(&["config", "check", text(&dir.path().join("none.yml"))])).code(2).shows(&["cannot be read"]);
    run(maitred(&["config", "check"])).code(2);
}

// STO-12: the check of a store URL must not show what is in it.
#[test]
fn sto_12_a_bad_store_url_is_told_without_its_password() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("network.yml");
    for url in ["redis://:hunter2@host:99999", "http://hunter2@host", "redis://:hunter2@host"] {
        fs::write(&file, format!("store: {{url: \"{url}\"}}\n")).expect("a file");
        for json in [&[][..], &["--json"]] {
            let ran = run(maitred(&[&["config", "check", text(&file)], json].concat()));
            assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{ran:?}");
            assert_eq!(
                ran.code,
                Some(if url.ends_with("@host") && url.starts_with("redis") { 0 } else { 2 }),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn pol_1_init_writes_a_file_that_passes_and_overwrites_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = maitred(&["config", "init"]);
    command.current_dir(dir.path());
    run(command).code(0).shows(&["wrote network.yml"]);
    let file = dir.path().join("network.yml");
    run(maitred(&["config", "check", text(&file)])).code(0).shows(&["network.yml: ok (not enabled, zone default"]);
    let told = run(maitred(&["config", "check", text(&file), "--json"])).code(0).json();
    assert_eq!((&told["ok"], &told["enabled"], &told["node_id"]), (&json!(true), &json!(false), &json!(null)));

    fs::write(&file, "zone: mine\n").expect("a file");
    run(maitred(&["config", "init", text(&file)])).code(2).complains(&["exists", "--force"]);
    assert_eq!(fs::read_to_string(&file).expect("the file"), "zone: mine\n");
    let told = run(maitred(&["config", "init", "--force", "--json", text(&file)])).code(0).json();
    let written = fs::read_to_string(&file).expect("the file");
    assert_eq!(told["bytes"], written.len());
    let ran = run(maitred(&["config", "init", "-"])).code(0);
    assert_eq!(ran.out, written);
    run(maitred(&["config", "init", text(&dir.path().join("no/such/folder.yml"))])).code(1).complains(&["writing"]);
}
