//! The pages for operators, as far as a machine can read them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of a code block that is typed into redis-cli.
#[derive(Debug, Clone)]
pub struct Typed {
    /// Page and line, for failures.
    pub at: String,
    pub words: Vec<String>,
}

impl Typed {
    pub fn command(&self) -> &str {
        &self.words[0]
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![docs().join("operating.md")];
    let beside = fs::read_dir(docs().join("operating")).expect("the pages beside it");
    pages.extend(beside.map(|entry| entry.expect("readable").path()));
    pages.sort_unstable();
    pages
}

/// Every command of every block, with what stands behind it taken off. A line that is neither a command nor the rest of an
/// explanation is a mistake of the document.
pub fn typed() -> Vec<Typed> {
    let mut found = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let mut inside = false;
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with("```") {
                inside = !inside;
                continue;
            }
            if !inside || line.starts_with(' ') || line.is_empty() || line.starts_with("maitred ") {
                continue;
            }
            let at = format!("{}:{number}", page.display());
            let words: Vec<String> =
                line.split("  ").next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
            assert!(words[0].bytes().all(|byte| byte.is_ascii_uppercase()), "{at}: what is {line:?}?");
            found.push(Typed { at, words });
        }
    }
    found
}

/// The lines that make the users, with `password` in them.
pub fn users(password: &str) -> Vec<Vec<String>> {
    let lines = typed().into_iter().filter(|typed| typed.words.starts_with(&["ACL".to_owned(), "SETUSER".to_owned()]));
    lines.map(|typed| typed.words.iter().map(|word| word.replace("PASSWORD", password)).collect()).collect()
}

/// What a user is granted, in lower case: `hget`, `script|load`.
pub fn granted(user: &str) -> BTreeSet<String> {
    let lines = users("pw").into_iter().filter(|words| words[2] == user);
    lines.flatten().filter_map(|word| word.strip_prefix('+').map(str::to_owned)).collect()
}

/// The names of keys and channels in docs/contract.md, as `node:<id>`.
pub fn patterns() -> Vec<String> {
    let contract = fs::read_to_string(docs().join("contract.md")).expect("the contract");
    let section = |title: &str| {
        let from = contract.find(&format!("\n## {title}\n")).expect("the section") + 1;
        let rest = &contract[from..];
        rest[..rest[3..].find("\n## ").map_or(rest.len(), |end| end + 3)].to_owned()
    };
    let keys = section("Keys");
    // The tables after the first one are about what is in a key.
    let keys = keys.split("\n### ").next().expect("a table").to_owned();
    let rows = format!("{keys}\n{}", section("Channels"));
    let names = rows.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    names.map(str::to_owned).collect()
}

/// Whether `name`, without the zone, is one of `pattern`. The last part of a name may hold colons.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (parts, values): (Vec<&str>, Vec<&str>) = (pattern.split(':').collect(), name.split(':').collect());
    parts.len() <= values.len()
        && (parts.len() == values.len() || parts.last().is_some_and(|part| part.starts_with('<')))
        && parts
            .iter()
            .zip(&values)
            .all(|(part, value)| if part.starts_with('<') { !value.is_empty() } else { part == value })
}

#[test]
fn names_fit_the_patterns_of_the_contract() {
    let all = patterns();
    assert!(all.len() > 25, "{all:?}");
    for (name, known) in [
        ("node:backend-7", true),
        ("events:line", true),
        ("route:island:i1", true),
        ("token:a:b", true),
        ("due", true),
        ("route:island", false),
        ("nodes", false),
        ("ticket:login", false),
        ("node:", false),
    ] {
        assert_eq!(all.iter().any(|pattern| fits(pattern, name)), known, "{name}");
    }
}
