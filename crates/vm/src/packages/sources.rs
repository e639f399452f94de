//! apt's list of sources, in both of its formats, and an entry of our own in the newer one.
//!
//! Source: sources.list(5).

/// One source of packages: a repository with its suites, as the machine has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The types, `deb` among them.
    pub(super) types: Vec<String>,
    /// The repositories; they serve the same.
    pub(super) uris: Vec<String>,
    /// The releases.
    pub(super) suites: Vec<String>,
    /// The parts of a release, `main` for example.
    pub(super) components: Vec<String>,
    /// All other fields that mean the same for any release: keys, checks. Names as in the newer format.
    pub(super) options: Vec<(String, String)>,
}

/// Fields and options that belong to the machine's own use of a source, not to the repository.
const OWN: [&str; 7] = ["Enabled", "Architectures", "Languages", "Targets", "PDiffs", "X-Repolib-Name", "Description"];

/// Reads the newer format: paragraphs of `Name: value`.
pub(super) fn parse_deb822(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut paragraph = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.extend(from_paragraph(std::mem::take(&mut paragraph)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = paragraph.last_mut() {
                *value = format!("{value}\n{line}");
            }
        } else if let Some((name, value)) = line.split_once(':') {
            paragraph.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    entries
}

/// Reads the older format: a line for each source.
pub(super) fn parse_one_line(text: &str) -> Vec<Entry> {
    text.lines().filter_map(from_line).collect()
}

impl Entry {
    /// An entry for `suites` of the same repository, in the newer format.
    pub(super) fn with_suites(&self, suites: &[String], architecture: &str) -> String {
        let mut text = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\nArchitectures: {architecture}\nTargets: Packages\n",
            self.uris.join(" "),
            suites.join(" "),
            self.components.join(" "),
        );
        for (name, value) in &self.options {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }

    /// The option `name`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|option| option.0.eq_ignore_ascii_case(name)).map(|option| option.1.as_str())
    }
}

fn from_paragraph(fields: Vec<(String, String)>) -> Option<Entry> {
    let mut entry = Entry { types: vec![], uris: vec![], suites: vec![], components: vec![], options: vec![] };
    for (name, value) in fields {
        let words = || value.split_whitespace().map(str::to_owned).collect();
        match name.to_ascii_lowercase().as_str() {
            "types" => entry.types = words(),
            "uris" => entry.uris = words(),
            "suites" => entry.suites = words(),
            "components" => entry.components = words(),
            "enabled" if matches!(value.to_ascii_lowercase().as_str(), "no" | "false" | "0" | "off") => return None,
            _ if OWN.iter().any(|own| own.eq_ignore_ascii_case(&name)) => {}
            _ => entry.options.push((name, value)),
        }
    }
    usable(entry)
}

/// `deb [name=value …] uri suite component…`
fn from_line(line: &str) -> Option<Entry> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let (kind, mut rest) = line.split_once(char::is_whitespace)?;
    let mut options = Vec::new();
    if let Some(bracketed) = rest.trim_start().strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']')?;
        options = inside.split_whitespace().filter_map(option).collect();
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    usable(Entry {
        types: vec![kind.to_owned()],
        uris: vec![uri],
        suites: vec![suite],
        components: words.collect(),
        options,
    })
}

/// `signed-by=FILE` as the field `Signed-By: FILE`; what belongs to the machine's own use is left out.
fn option(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    const OWN_SHORT: [&str; 4] = ["arch", "lang", "target", "pdiffs"];
    let name = name.trim_end_matches(['+', '-']);
    if OWN_SHORT.contains(&name) {
        return None;
    }
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_ascii_uppercase() + rest
    });
    Some((words.collect::<Vec<_>>().join("-"), value.replace(',', " ")))
}

/// Only sources of binary packages with a release that has components.
fn usable(entry: Entry) -> Option<Entry> {
    let is_usable = entry.types.iter().any(|kind| kind == "deb")
        && !entry.uris.is_empty()
        && !entry.suites.is_empty()
        && !entry.components.is_empty();
    is_usable.then_some(entry)
}

#[cfg(test)]
#[path = "sources_test.rs"]
mod tests;
