//! The paths that a source file names: those of its `use` lines, and those that stand in its code.

/// One path that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub segments: Vec<String>,
    /// Under which name a `use` line makes it known; `None` for a path in the code.
    pub alias: Option<String>,
    /// The line hands it on to others: `pub use`, `pub(super) use`.
    pub hands_on: bool,
}

/// All paths of a file, without those of its unit tests.
pub fn paths(source: &str) -> Vec<Named> {
    let code = tokens(source);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = code.get(at) {
        match token.as_str() {
            "use" => {
                let hands_on = at > 0 && is_visible(&code[..at]);
                at = tree(&code, at + 1, &[], hands_on, &mut found);
            }
            "crate" | "super" => {
                let mut segments = vec![token.clone()];
                while code.get(at + 1).is_some_and(|next| next == "::")
                    && code.get(at + 2).is_some_and(|next| is_name(next))
                {
                    segments.push(code[at + 2].clone());
                    at += 2;
                }
                // The words of `pub(super)` and `pub(crate)` name nothing.
                if segments.len() > 1 && !is_in_visibility(&code, at) {
                    found.push(Named { segments, alias: None, hands_on: false });
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

/// The tokens before a `use` end with a visibility.
fn is_visible(before: &[String]) -> bool {
    match before.last().map(String::as_str) {
        Some("pub") => true,
        Some(")") => {
            let open = before.iter().rposition(|token| token == "(");
            open.and_then(|open| open.checked_sub(1)).and_then(|at| before.get(at)).is_some_and(|token| token == "pub")
        }
        _ => false,
    }
}

/// The path that ends at `at` stands in `pub(in …)`.
fn is_in_visibility(code: &[String], at: usize) -> bool {
    let open = code[..at].iter().rposition(|token| !is_name(token) && token != "::");
    open.is_some_and(|open| code[open] == "(" && open > 0 && code[open - 1] == "pub")
}

/// Reads one tree of a `use` line from `at` on; answers where it ends.
fn tree(code: &[String], mut at: usize, before: &[String], hands_on: bool, found: &mut Vec<Named>) -> usize {
    let mut segments = before.to_vec();
    while let Some(token) = code.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while code.get(at).is_some_and(|token| token != "}") {
                    let from = at;
                    at = tree(code, at, &segments, hands_on, found);
                    // What is no path is passed over.
                    at += usize::from(at == from && code[at] != ",");
                    if code.get(at).is_some_and(|token| token == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "as" => {
                found.push(Named { segments, alias: code.get(at + 1).cloned(), hands_on });
                return at + 2;
            }
            "::" => at += 1,
            "," | "}" | ";" => break,
            // `use a::{self}` makes `a` known.
            "self" if !segments.is_empty() => at += 1,
            _ => {
                segments.push(token.clone());
                at += 1;
            }
        }
    }
    let alias = segments.last().cloned();
    found.push(Named { segments, alias, hands_on });
    at
}

fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_')
}

/// Names and signs of the code, without comments, texts and unit tests.
fn tokens(source: &str) -> Vec<String> {
    let code = source.find("#[cfg(test)]\nmod tests").map_or(source, |tests| &source[..tests]);
    let mut tokens = Vec::new();
    for line in code.lines() {
        let mut rest = line;
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else { break };
            if rest.starts_with("//") {
                break;
            }
            let length = if rest.starts_with("::") {
                2
            } else if is_name(rest) {
                rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len())
            } else if first == '"' {
                // What a text goes on with in the next line is no path either: its words follow no `use`.
                rest[1..].find('"').map_or(rest.len(), |end| end + 2)
            } else {
                first.len_utf8()
            };
            tokens.push(rest[..length].to_owned());
            rest = &rest[length..];
        }
    }
    tokens
}
