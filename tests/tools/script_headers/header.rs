//! Reads the comment at the top of a script: what `redis-cli` users and the next author go by.

use std::collections::BTreeMap;

/// The sections of a header, in the order they have to stand in.
pub const SECTIONS: [&str; 7] = ["KEYS", "ARGV", "Answers", "Events", "Bound", "Repeat", "Example"];

/// What a header says of KEYS or of ARGV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// How many there always are.
    pub fixed: usize,
    /// More may follow (`4..`, or `then …`).
    pub repeats: bool,
}

/// A header, taken apart.
#[derive(Debug)]
pub struct Header {
    /// `<system>/<verb>`.
    pub name: String,
    /// What the script does, in one line.
    pub purpose: String,
    /// KEYS.
    pub keys: Count,
    /// ARGV.
    pub args: Count,
    /// The words that answers begin with, in the order of the header.
    pub answers: Vec<String>,
    sections: BTreeMap<&'static str, Vec<String>>,
}

impl Header {
    /// Reads the header of `source`; the error says which rule it breaks.
    pub fn parse(source: &str) -> Result<Self, String> {
        let mut lines = source.lines().take_while(|line| line.starts_with("--"));
        let first = lines.next().ok_or("there is no header")?;
        let (name, purpose) = first
            .strip_prefix("-- ")
            .and_then(|first| first.split_once(": "))
            .ok_or_else(|| format!("the first line is no `-- system/verb: purpose`: {first:?}"))?;
        if lines.next() != Some("--") {
            return Err("the second line is not empty, so the purpose is no single line".to_owned());
        }
        let sections = sections(lines)?;
        let keys = count(&key_entries(&sections["KEYS"])).map_err(|why| format!("KEYS: {why}"))?;
        let args = count(&arg_entries(&sections["ARGV"])).map_err(|why| format!("ARGV: {why}"))?;
        let answers = answers(&sections["Answers"])?;
        Ok(Self { name: name.to_owned(), purpose: purpose.to_owned(), keys, args, answers, sections })
    }

    /// The text of a section, its lines joined with blanks.
    pub fn text(&self, section: &str) -> String {
        let lines = self.sections.get(section).map_or(&[][..], Vec::as_slice);
        lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// The worked call without its `EVALSHA <sha>`: keys and arguments.
    pub fn example(&self) -> Result<(Vec<String>, Vec<String>), String> {
        let text = self.text("Example");
        let rest = text.strip_prefix("EVALSHA <sha> ").ok_or("the example is no `EVALSHA <sha> …`")?;
        let mut words = shell_words(rest)?.into_iter();
        let keys: usize =
            words.next().and_then(|word| word.parse().ok()).ok_or("the example has no number of keys".to_owned())?;
        let rest: Vec<String> = words.collect();
        if rest.len() < keys {
            return Err(format!("the example says {keys} keys and has {}", rest.len()));
        }
        let args = rest[keys..].to_vec();
        Ok((rest[..keys].to_vec(), args))
    }
}

/// Splits the lines into sections. Lines keep their indentation beyond the column where the section's text begins.
fn sections<'a>(lines: impl Iterator<Item = &'a str>) -> Result<BTreeMap<&'static str, Vec<String>>, String> {
    let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
    for line in lines {
        let body = line.strip_prefix("-- ").ok_or_else(|| format!("an empty or crooked line: {line:?}"))?;
        if !body.starts_with(' ') {
            let label = body.split(' ').next().unwrap_or_default();
            let section = SECTIONS
                .into_iter()
                .find(|section| *section == label)
                .ok_or_else(|| format!("no section of a header: {label:?}"))?;
            found.push((section, Vec::new()));
        }
        let (section, texts) = found.last_mut().ok_or_else(|| format!("text before the first section: {line:?}"))?;
        let column = if matches!(*section, "KEYS" | "ARGV") { "-- KEYS ".len() } else { "-- Answers ".len() };
        let indented = line.get(column..).ok_or_else(|| format!("text left of its column: {line:?}"))?;
        let margin = line.get(2..column).unwrap_or_default().replace(*section, "");
        if !margin.trim().is_empty() {
            return Err(format!("text left of its column: {line:?}"));
        }
        texts.push(indented.to_owned());
    }
    let order: Vec<&str> = found.iter().map(|(section, _)| *section).collect();
    if order != SECTIONS {
        return Err(format!("sections are {order:?}, expected are {SECTIONS:?}"));
    }
    if let Some((section, _)) = found.iter().find(|(_, texts)| texts.concat().trim().is_empty()) {
        return Err(format!("{section} is empty"));
    }
    Ok(found.into_iter().collect())
}

/// KEYS stand one a line.
fn key_entries(lines: &[String]) -> Vec<String> {
    lines.iter().filter(|line| !line.starts_with(' ')).cloned().collect()
}

/// ARGV stand behind each other with commas; what is in brackets explains and may hold commas and numbers.
fn arg_entries(lines: &[String]) -> Vec<String> {
    let (mut depth, mut plain) = (0_u32, String::new());
    for letter in lines.join(" ").chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain.split(',').map(|entry| entry.trim().to_owned()).collect()
}

fn count(entries: &[String]) -> Result<Count, String> {
    let (mut fixed, mut repeats) = (0, false);
    for entry in entries {
        let digits: String = entry.chars().take_while(char::is_ascii_digit).collect();
        let rest = &entry[digits.len()..];
        if digits.is_empty() {
            // Behind a `then` stands what repeats, in words.
            if !repeats && !entry.starts_with("then ") {
                return Err(format!("an entry without a number: {entry:?}"));
            }
            repeats = true;
            continue;
        }
        if digits != (fixed + 1).to_string() || repeats {
            return Err(format!("number {digits} where {} has to follow: {entry:?}", fixed + 1));
        }
        match rest.strip_prefix("..") {
            Some(_) => repeats = true,
            None if rest.len() > 1 && rest.starts_with(' ') => fixed += 1,
            None => return Err(format!("a number without a name: {entry:?}")),
        }
    }
    Ok(Count { fixed, repeats })
}

fn answers(lines: &[String]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for line in lines.iter().filter(|line| !line.starts_with(' ')) {
        let word: String = line.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        if word.len() < 2 || line.len() == word.len() {
            return Err(format!("no answer with its meaning: {line:?}"));
        }
        words.push(word);
    }
    Ok(words)
}

/// Words as a shell takes them: double quotes hold blanks together.
fn shell_words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    // Quotes open a word only at its beginning, so that JSON stands in an example as it is.
    for letter in text.chars() {
        match (letter, quoted) {
            ('"', true) => quoted = false,
            ('"', false) if word.is_none() => {
                quoted = true;
                word = Some(String::new());
            }
            (' ', false) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if quoted { Err("an open quote in the example".to_owned()) } else { Ok(words) }
}
