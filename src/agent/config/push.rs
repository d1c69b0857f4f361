//! The part of a config that goes through the store to every node (POL-5).

use serde_json::Value as Json;

use super::check;
use super::fits::shown;
use super::model::Config;
use super::problem::{Problem, all_or_error};
use super::sections;
use super::walk;
use super::yaml::{self, Node, Value};
use crate::error::Result;

/// Longest text of a pushed config, in bytes.
pub const PUSH_MAX_BYTES: usize = 65_536;

/// What of a file can be pushed. The text is JSON of the sections that can change while an agent runs, with the keys that
/// the file gives and no other: each of them goes before the same key of a node's own file, all others stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    text: String,
    keys: Vec<String>,
    left_out: Vec<String>,
}

impl Push {
    /// Takes the pushable keys out of the text of a `network.yml`, which is checked as a whole.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) as from [`Config::from_yaml`], and where the text to push would be longer
    /// than 64 KiB.
    pub fn from_yaml(text: &str) -> Result<Self> {
        let config = Config::from_yaml(text)?;
        let tree = yaml::parse(text)?;
        let (mut sections, mut keys, mut left_out) = (serde_json::Map::new(), Vec::new(), Vec::new());
        for (name, value) in entries(&tree) {
            let names = if sections::is_hot(name) { &mut keys } else { &mut left_out };
            match &value.value {
                Value::Map(_) => names.extend(entries(value).map(|(key, _)| shown(name, key))),
                _ => names.push(name.to_owned()),
            }
            if sections::is_hot(name) {
                sections.insert(name.to_owned(), json(value));
            }
        }
        let text = if keys.is_empty() { String::new() } else { Json::Object(sections).to_string() };
        // What every node will do with it. Nothing of the config may change on the way.
        if config.with_push(&text)? != config {
            return Err(problem("does not come back as it is in the file".to_owned(), "plain texts and numbers").into());
        }
        Ok(Self { text, keys, left_out })
    }

    /// The value of the control entry; empty where the file gives nothing that can be pushed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The keys in it, in the order of the file.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The keys of the file that cannot be pushed: they stay with each host.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The sections that can be pushed, as a list for people.
    pub fn sections() -> String {
        sections::hot()
    }
}

impl Config {
    /// This config with a pushed one over it: the value of a control entry. An empty value is that of a push that was
    /// withdrawn, and changes nothing.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) with every problem: keys that this build does not know, values out of
    /// bounds, and sections that cannot be pushed.
    pub fn with_push(&self, value: &str) -> Result<Self> {
        if value.is_empty() {
            return Ok(self.clone());
        }
        if value.len() > PUSH_MAX_BYTES {
            return Err(problem(format!("is too long ({} bytes)", value.len()), "at most 65536 bytes").into());
        }
        let tree = yaml::parse(value)?;
        let mut walked = walk::walk_over(self.clone(), &tree);
        check::check(&mut walked);
        let fixed = entries(&tree).filter(|(name, _)| !sections::is_hot(name)).map(|(name, value)| Problem {
            path: shown("", name),
            place: value.place,
            what: "cannot be pushed".to_owned(),
            allowed: sections::hot(),
        });
        walked.problems.extend(fixed);
        all_or_error(walked.problems)?;
        Ok(walked.config)
    }
}

fn problem(what: String, allowed: &str) -> Problem {
    Problem { path: "(push)".to_owned(), place: None, what, allowed: allowed.to_owned() }
}

/// The entries of a mapping with a name as key; those of another kind are problems of the walk.
fn entries(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = match &node.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().filter_map(|(key, value)| match &key.value {
        Value::Text(name) => Some((name.as_str(), value)),
        _ => None,
    })
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Flag(flag) => (*flag).into(),
        Value::Whole(number) => u64::try_from(*number)
            .map(Json::from)
            .or_else(|_| i64::try_from(*number).map(Json::from))
            .unwrap_or_default(),
        Value::Text(text) => text.as_str().into(),
        Value::Map(_) => Json::Object(entries(node).map(|(name, value)| (name.to_owned(), json(value))).collect()),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Fraction(number) => (*number).into(),
        Value::Nothing => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn lines(result: Result<impl std::fmt::Debug>) -> Vec<String> {
        match result {
            Err(Error::Config { problems }) => problems,
            other => panic!("{other:?}"),
        }
    }

    // POL-5: a password of the file must not get into the store, and a host keeps what is its own.
    #[test]
    fn pol_5_only_what_can_change_goes_into_the_store() {
        let file = "enabled: true\nzone: eu\nstore: { url: \"redis://u:hunter2@h:1\" }\n\
                    dispatch: { maxRetries: 5 }\ntriggers:\n  join: true\ntexts:\n  lost: \"a \\\"b\\\"\\n\\u00fc\"\n";
        let push = Push::from_yaml(file).expect("a good file");
        assert_eq!(push.keys(), ["dispatch.maxRetries", "triggers.join", "texts.lost"]);
        assert_eq!(push.left_out(), ["enabled", "zone", "store.url"]);
        let text = r#"{"dispatch":{"maxRetries":5},"texts":{"lost":"a \"b\"\nü"},"triggers":{"join":true}}"#;
        let pushed: Json = serde_json::from_str(push.text()).expect("JSON");
        assert_eq!(pushed, serde_json::from_str::<Json>(text).expect("JSON"));

        let mut host = Config { enabled: true, ..Config::default() };
        host.dispatch.cooldown_ms = 77;
        host.dispatch.max_retries = 1;
        let merged = host.with_push(push.text()).expect("usable");
        assert_eq!((merged.dispatch.max_retries, merged.dispatch.cooldown_ms), (5, 77), "key by key");
        assert_eq!((merged.triggers.join, merged.texts.lost.as_str()), (true, "a \"b\"\nü"));
        assert_eq!(host.changed(&merged), ["dispatch", "triggers", "texts"]);
        assert_eq!(host.with_push("").expect("withdrawn"), host);
    }

    #[test]
    fn pol_5_a_push_that_cannot_be_used_is_refused_as_a_whole() {
        let host = Config::default();
        for (value, want) in [
            ("{\"store\":{\"commandTimeoutMs\":60}}", "store: cannot be pushed"),
            ("{\"enabled\":false,\"dispatch\":{\"maxRetries\":1}}", "enabled: cannot be pushed"),
            ("{\"dispatch\":{\"ofTomorrow\":1}}", "dispatch.ofTomorrow: unknown key"),
            ("{\"tomorrow\":{\"x\":1}}", "tomorrow: unknown key"),
            ("{\"dispatch\":{\"maxRetries\":17}}", "dispatch.maxRetries: 17 is out of range"),
            ("{\"dispatch\":", "(file): it is not readable as YAML"),
            ("[1]", "(file): expected a mapping"),
        ] {
            let problems = lines(host.with_push(value));
            assert!(problems.iter().any(|line| line.starts_with(want)), "{value}: {problems:?}");
        }
        let long = format!("{{\"texts\":{{\"lost\":\"{}\"}}}}", "x".repeat(PUSH_MAX_BYTES));
        assert!(lines(host.with_push(&long))[0].contains("too long"));
    }

    #[test]
    fn pol_5_a_broken_file_is_named_with_its_lines_and_one_with_nothing_to_push_is_empty() {
        let problems = lines(Push::from_yaml("dispatch:\n  maxRetries: 99\ntriggers:\n  joyn: true\n"));
        assert!(problems[0].starts_with("dispatch.maxRetries: 99 is out of range (line 2"), "{problems:?}");
        assert!(problems[1].starts_with("triggers.joyn: unknown key (line 4"), "{problems:?}");
        let nothing = Push::from_yaml("zone: eu\nheartbeat: { intervalMs: 900 }\n").expect("a good file");
        assert_eq!((nothing.text(), nothing.keys().len()), ("", 0));
        let all = Push::from_yaml(Config::default_yaml()).expect("the default file");
        assert_eq!(Config::default().with_push(all.text()).expect("usable"), Config::default());
    }
}
