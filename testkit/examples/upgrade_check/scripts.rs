//! Names of scripts: another client, and an operator's notes, go by them.

use std::collections::BTreeMap;

use super::fleet::{Build, Builds, Fleet};

pub async fn kept(builds: Builds) -> String {
    let fleet = Fleet::new(builds, "");
    let read = |build| -> BTreeMap<String, String> {
        let told = fleet.command(build, &["scripts", "list"]);
        let text = |script: &serde_json::Value, field: &str| script[field].as_str().unwrap_or_default().to_owned();
        let scripts = told["scripts"].as_array().expect("a list of scripts");
        scripts.iter().map(|script| (text(script, "name"), text(script, "sha1"))).collect()
    };
    let (old, new) = (read(Build::Old), read(Build::New));
    let gone: Vec<&String> = old.keys().filter(|name| !new.contains_key(*name)).collect();
    assert!(gone.is_empty() && !old.is_empty(), "gone: {gone:?} of {}", old.len());
    let changed = old.iter().filter(|(name, sha1)| new.get(*name) != Some(sha1)).count();
    format!("{changed} of {} differ, {} are new", old.len(), new.len() - old.len())
}
