//! What a script's code does, as far as it can be seen without running it.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::{Token, tokens};

/// One `redis.call` or `redis.pcall`.
#[derive(Debug)]
pub struct Call {
    /// The command, empty where it is no plain text.
    pub command: String,
    /// Whether the first argument behind the command is a key out of KEYS.
    pub first_is_key: bool,
}

/// A script's code, taken apart.
#[derive(Debug)]
pub struct Code {
    tokens: Vec<Token>,
    /// Name, or `.field`, to all that is ever put there.
    assigned: BTreeMap<String, Vec<Vec<Token>>>,
    keys: BTreeSet<String>,
}

impl Code {
    /// Reads `source`.
    pub fn read(source: &str) -> Result<Self, String> {
        let mut code = Self { tokens: tokens(source)?, assigned: BTreeMap::new(), keys: BTreeSet::new() };
        code.collect_assignments();
        code.keys = code.assigned.keys().cloned().collect();
        // What is ever anything else than a key is no key, and neither is what may get its value from there.
        loop {
            let wrong = |values: &Vec<Vec<Token>>| !values.iter().all(|value| code.is_key(value));
            let lost: Vec<String> = code.keys.iter().filter(|name| wrong(&code.assigned[*name])).cloned().collect();
            if lost.is_empty() {
                return Ok(code);
            }
            for name in lost {
                code.keys.remove(&name);
            }
        }
    }

    /// The literal indexes into `table` (`KEYS` or `ARGV`).
    pub fn indexes(&self, table: &str) -> BTreeSet<usize> {
        let literal = |window: &[Token]| match window {
            [name, open, Token::Number(number), close]
                if name.is_word(table) && open.is_sign("[") && close.is_sign("]") =>
            {
                number.parse().ok()
            }
            _ => None,
        };
        self.tokens.windows(4).filter_map(literal).collect()
    }

    /// The number that `#table` is compared with by `~=`, where the code does so with a literal.
    pub fn arity(&self, table: &str) -> Option<usize> {
        self.tokens.windows(5).find_map(|window| match window {
            [length, name, differs, Token::Number(number), next]
                if length.is_sign("#") && name.is_word(table) && differs.is_sign("~=") && !next.is_sign("+") =>
            {
                number.parse().ok()
            }
            _ => None,
        })
    }

    /// Every use of the global `redis`: what stands behind the dot.
    pub fn redis_functions(&self) -> BTreeSet<String> {
        let used = self.tokens.windows(3).filter(|window| window[0].is_word("redis"));
        used.map(|window| if window[1].is_sign(".") { window[2].name().unwrap_or("?") } else { "?" }.to_owned())
            .collect()
    }

    /// Every `redis.call` and `redis.pcall`.
    pub fn calls(&self) -> Vec<Call> {
        let starts = (0..self.tokens.len()).filter(|at| {
            let behind = |offset: usize| self.tokens.get(at + offset);
            behind(0).is_some_and(|t| t.is_word("redis"))
                && behind(2).is_some_and(|t| t.is_word("call") || t.is_word("pcall"))
        });
        starts
            .map(|at| {
                let args = self.list(at + 4);
                let command = match args.first().map(Vec::as_slice) {
                    Some([Token::Text(command)]) => command.clone(),
                    _ => String::new(),
                };
                Call { command, first_is_key: args.get(1).is_some_and(|arg| self.is_key(arg)) }
            })
            .collect()
    }

    /// Every string literal.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| match token {
            Token::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Keys that are an operand of `..`: a key is taken apart or built there.
    pub fn concatenated_keys(&self) -> Vec<String> {
        let name = |token: &Token| token.name().filter(|name| self.keys.contains(*name)).map(str::to_owned);
        let mut found = Vec::new();
        for (at, _) in self.tokens.iter().enumerate().filter(|(_, token)| token.is_sign("..")) {
            found.extend(self.tokens.get(at + 1).filter(|next| next.is_word("KEYS")).map(|_| "KEYS".to_owned()));
            found.extend(self.tokens.get(at + 1).and_then(name));
            let Some(before) = at.checked_sub(1).and_then(|before| self.tokens.get(before)) else { continue };
            found.extend(name(before));
            if before.is_sign("]") {
                let open = self.tokens[..at].iter().rposition(|token| token.is_sign("[")).unwrap_or_default();
                found.extend(self.tokens[..open].last().filter(|t| t.is_word("KEYS")).map(|_| "KEYS".to_owned()));
            }
        }
        found
    }

    /// The words that answers begin with, and the texts of error answers. Errors where a `return` is of a form whose
    /// word cannot be told.
    pub fn answers(&self) -> Result<(BTreeSet<String>, Vec<String>), String> {
        let (mut words, mut errors) = (BTreeSet::new(), Vec::new());
        let inner = self.function_bodies();
        for at in (0..self.tokens.len()).filter(|at| self.tokens[*at].is_word("return")) {
            if inner.values().any(|body| body.contains(&at)) {
                continue;
            }
            let value = self.expression(at + 1);
            let found = match value.as_slice() {
                [redis, _, reply, _, Token::Text(text), ..]
                    if redis.is_word("redis") && reply.is_word("error_reply") =>
                {
                    errors.push(text.clone());
                    continue;
                }
                [open, ..] if open.is_sign("{") => self.words_of(&self.list(at + 2)[0], &inner)?,
                [Token::Word(table)] => {
                    let mut found = Vec::new();
                    for value in self.assigned.get(table).into_iter().flatten() {
                        if let [open, Token::Text(word), ..] = value.as_slice()
                            && open.is_sign("{")
                        {
                            found.push(word.clone());
                        }
                    }
                    found
                }
                other => return Err(format!("a return whose word cannot be told: {other:?}")),
            };
            if found.is_empty() {
                return Err(format!("a return without a word: {value:?}"));
            }
            words.extend(found);
        }
        Ok((words, errors))
    }

    /// The texts that the first element of an answer can be.
    fn words_of(
        &self,
        element: &[Token],
        inner: &BTreeMap<String, std::ops::Range<usize>>,
    ) -> Result<Vec<String>, String> {
        let [Token::Word(name)] = element else {
            return Ok(texts_in(element));
        };
        let mut found = Vec::new();
        for value in self.assigned.get(name).into_iter().flatten() {
            match value.as_slice() {
                [Token::Text(word)] => found.push(word.clone()),
                // Put there by a function of the script that answers several values: `#2 name ( … )`.
                [Token::Number(place), Token::Word(function), ..] => {
                    let place: usize = place.parse().map_err(|_| format!("{name} has no place"))?;
                    let body = inner.get(function).ok_or_else(|| format!("{name} comes from {function}"))?;
                    for at in body.clone().filter(|at| self.tokens[*at].is_word("return")) {
                        found.extend(self.list(at + 1).get(place).map(|value| texts_in(value)).unwrap_or_default());
                    }
                }
                other => return Err(format!("{name} may be {other:?}")),
            }
        }
        Ok(found)
    }

    /// Whether an expression is `KEYS[…]`, or a name or field that only ever holds one.
    fn is_key(&self, value: &[Token]) -> bool {
        match value {
            [keys, open, inside @ .., close] if keys.is_word("KEYS") && open.is_sign("[") && close.is_sign("]") => {
                !inside.iter().any(|token| token.is_sign("[") || token.is_sign("]"))
            }
            [Token::Word(name)] => self.keys.contains(name),
            [Token::Word(_), dot, Token::Word(field)] if dot.is_sign(".") => self.keys.contains(&format!(".{field}")),
            _ => false,
        }
    }

    fn collect_assignments(&mut self) {
        let mut found: Vec<(String, Vec<Token>)> = Vec::new();
        for at in (0..self.tokens.len()).filter(|at| self.tokens[*at].is_sign("=")) {
            let names = self.names_before(at);
            let values = self.list(at + 1);
            for (place, name) in names.into_iter().enumerate() {
                let value = match values.get(place) {
                    Some(value) => value.clone(),
                    None => {
                        let mut behind = vec![Token::Number((place + 1 - values.len()).to_string())];
                        behind.extend(values.last().cloned().unwrap_or_default());
                        behind
                    }
                };
                found.push((name, value));
            }
        }
        for (function, body) in self.function_bodies() {
            for (place, parameter) in self.list(body.start).into_iter().enumerate() {
                let [Token::Word(parameter)] = parameter.as_slice() else { continue };
                for call in self.uses(&function) {
                    found.push((parameter.clone(), self.list(call + 2).get(place).cloned().unwrap_or_default()));
                }
            }
        }
        for (name, value) in found {
            self.assigned.entry(name).or_default().push(value);
        }
    }

    /// Where a function of the script is called.
    fn uses(&self, function: &str) -> Vec<usize> {
        let is_call = |at: &usize| {
            self.tokens[*at].is_word(function)
                && self.tokens.get(at + 1).is_some_and(|next| next.is_sign("("))
                && !at.checked_sub(1).is_some_and(|before| self.tokens[before].is_word("function"))
        };
        (0..self.tokens.len()).filter(is_call).collect()
    }

    /// The targets in front of `=`: names, `.field` for a field, and for the fields of a table that is being written.
    fn names_before(&self, equals: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = equals;
        while let Some(name) = at.checked_sub(1).and_then(|before| self.tokens[before].name()) {
            at -= 1;
            let token = |back: usize| at.checked_sub(back).and_then(|before| self.tokens.get(before));
            if token(1).is_some_and(|t| t.is_sign(".")) {
                names.push(format!(".{name}"));
                at -= 2;
            } else if self.inside_braces(at) {
                names.push(format!(".{name}"));
                break;
            } else {
                names.push(name.to_owned());
            }
            let comma = at.checked_sub(1).is_some_and(|before| self.tokens[before].is_sign(","));
            if !comma {
                break;
            }
            at -= 1;
        }
        names.reverse();
        names
    }

    fn inside_braces(&self, at: usize) -> bool {
        let depth = self.tokens[..at].iter().fold(0_i32, |depth, token| match token {
            token if token.is_sign("{") => depth + 1,
            token if token.is_sign("}") => depth - 1,
            _ => depth,
        });
        depth > 0
    }

    /// The functions of the script: from behind the `(` of their parameters to their `end`.
    fn function_bodies(&self) -> BTreeMap<String, std::ops::Range<usize>> {
        let mut bodies = BTreeMap::new();
        for at in (0..self.tokens.len()).filter(|at| self.tokens[*at].is_word("function")) {
            let Some(name) = self.tokens.get(at + 1).and_then(Token::name) else { continue };
            let mut depth = 0_i32;
            let end = self.tokens[at..].iter().position(|token| {
                depth += i32::from(["function", "if", "do"].into_iter().any(|opener| token.is_word(opener)));
                depth -= i32::from(token.is_word("end"));
                depth == 0
            });
            bodies.insert(name.to_owned(), at + 3..at + end.unwrap_or_default());
        }
        bodies
    }

    /// The expressions from `at` on that stand behind each other with commas.
    fn list(&self, mut at: usize) -> Vec<Vec<Token>> {
        let mut values = Vec::new();
        loop {
            let value = self.expression(at);
            at += value.len();
            values.push(value);
            if !self.tokens.get(at).is_some_and(|token| token.is_sign(",")) {
                return values;
            }
            at += 1;
        }
    }

    /// One expression: it ends at a comma or closing bracket of somebody else, and where an operand follows another.
    fn expression(&self, start: usize) -> Vec<Token> {
        let (mut depth, mut operand) = (0_u32, false);
        let mut at = start;
        while let Some(token) = self.tokens.get(at) {
            match token {
                Token::Sign("(" | "{" | "[") => (depth, operand) = (depth + 1, false),
                Token::Sign(")" | "}" | "]") if depth == 0 => break,
                Token::Sign(")" | "}" | "]") => (depth, operand) = (depth - 1, true),
                Token::Sign(",") if depth == 0 => break,
                Token::Sign(_) => operand = false,
                Token::Word(word) if matches!(word.as_str(), "and" | "or" | "not") => operand = false,
                _ if depth == 0 && (operand || is_statement(token)) => break,
                _ => operand = true,
            }
            at += 1;
        }
        self.tokens[start..at].to_vec()
    }
}

fn is_statement(token: &Token) -> bool {
    matches!(token, Token::Word(_))
        && token.name().is_none()
        && !["true", "false", "nil"].iter().any(|v| token.is_word(v))
}

fn texts_in(value: &[Token]) -> Vec<String> {
    value
        .iter()
        .filter_map(|token| match token {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        })
        .collect()
}
