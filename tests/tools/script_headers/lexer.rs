//! Cuts Lua source into tokens, as far as the scripts use the language.

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A name or keyword.
    Word(String),
    /// A number, as written.
    Number(String),
    /// A string in single quotes, without them.
    Text(String),
    /// An operator or bracket.
    Sign(&'static str),
}

/// Longest first, so that `..` is not read as two dots.
const SIGNS: [&str; 28] = [
    "...", "..", "==", "~=", "<=", ">=", "(", ")", "{", "}", "[", "]", "+", "-", "*", "/", "%", "^", "#", "<", ">",
    "=", ",", ".", ";", ":", "&", "|",
];

impl Token {
    /// Whether it is this name or keyword.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }

    /// Whether it is this operator or bracket.
    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(found) if *found == sign)
    }

    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Word(word) if !is_keyword(word) => Some(word),
            _ => None,
        }
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "break"
            | "do"
            | "else"
            | "elseif"
            | "end"
            | "false"
            | "for"
            | "function"
            | "if"
            | "in"
            | "local"
            | "nil"
            | "not"
            | "or"
            | "repeat"
            | "return"
            | "then"
            | "true"
            | "until"
            | "while"
    )
}

/// The tokens of `source` without comments. Double quotes and long brackets are refused: the scripts use neither.
pub fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with("--") {
            let taken;
            let letter = rest.chars().next().unwrap_or_default();
            if letter.is_ascii_alphabetic() || letter == '_' {
                taken = length(rest, |c| c.is_ascii_alphanumeric() || c == '_');
                tokens.push(Token::Word(rest[..taken].to_owned()));
            } else if letter.is_ascii_digit() {
                taken = length(rest, |c| c.is_ascii_alphanumeric());
                tokens.push(Token::Number(rest[..taken].to_owned()));
            } else if letter == '\'' {
                let text = rest[1..].split('\'').next().unwrap_or_default();
                taken = text.len() + 2;
                if taken > rest.len() || text.contains('\\') {
                    return Err(format!("line {}: a string that is open or escapes something", number + 1));
                }
                tokens.push(Token::Text(text.to_owned()));
            } else {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| format!("line {}: unknown sign {letter:?}", number + 1))?;
                taken = sign.len();
                tokens.push(Token::Sign(sign));
            }
            rest = rest[taken..].trim_start();
        }
    }
    Ok(tokens)
}

fn length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}
