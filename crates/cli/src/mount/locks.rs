//! Warns of daemon options that combine locks shared between mounts with a cache that ignores them.
//!
//! Programs that share a database lock it, and expect to see every change made before another program released the
//! lock. In a cache mode with timeouts, the kernel of one mount keeps using cached names and attributes, whatever
//! another mount or the host changes.

use std::ffi::OsString;

/// The daemon's cache mode and locks. Later arguments override earlier ones, and the list of `-o` overrides all others,
/// as in the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    posix_lock: bool,
    flock: bool,
    cache: String,
}

/// Returns a warning if a daemon with the arguments `args` combines locks with a cache that has timeouts.
pub(super) fn warning(args: &[OsString]) -> Option<String> {
    let Choice { posix_lock, flock, cache } = Choice::new(args);
    let locks = match (posix_lock, flock) {
        (true, _) => "--posix-lock",
        (false, true) => "--flock",
        (false, false) => return None,
    };
    if matches!(cache.as_str(), "never" | "none") {
        return None;
    }
    Some(format!(
        "{locks} with --cache={cache}: this mount caches names and attributes even if another mount or the host \
         changes them, so programs that share a database can lose data; use --cache=never if the share is also used \
         elsewhere"
    ))
}

impl Choice {
    fn new(args: &[OsString]) -> Self {
        let mut choice = Self { posix_lock: false, flock: false, cache: "auto".to_owned() };
        let mut lists = Vec::new();
        let mut words = args.iter().map(|arg| arg.to_string_lossy());
        while let Some(word) = words.next() {
            let (name, value) =
                word.split_once('=').map_or((&*word, None), |(name, value)| (name, Some(value.to_owned())));
            match name {
                "--cache" => choice.cache = value.or_else(|| words.next().map(Into::into)).unwrap_or_default(),
                "-o" => lists.extend(words.next().map(String::from)),
                _ => {
                    if let Some(list) = word.strip_prefix("-o") {
                        lists.push(list.to_owned());
                    } else if let Some(name) = name.strip_prefix("--") {
                        choice.switch(&name.replace('-', "_"));
                    }
                }
            }
        }
        for option in lists.iter().flat_map(|list| list.split(',')) {
            match option.split_once('=') {
                Some(("cache", mode)) => choice.cache = mode.to_owned(),
                _ => choice.switch(option),
            }
        }
        choice
    }

    fn switch(&mut self, name: &str) {
        match name {
            "posix_lock" => self.posix_lock = true,
            "no_posix_lock" => self.posix_lock = false,
            "flock" => self.flock = true,
            "no_flock" => self.flock = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warns(args: &str) -> bool {
        let args: Vec<_> = args.split_whitespace().map(OsString::from).collect();
        warning(&args).is_some()
    }

    #[test]
    fn locks_with_time_outs_are_warned_of_in_every_spelling() {
        for args in [
            "--posix-lock",
            "--flock",
            "--xattr --flock --cache=always",
            "--cache never --posix-lock --cache auto",
            "--posix-lock --cache metadata",
            "-o posix_lock,cache=always",
            "-oflock",
            "--cache=never -o flock,cache=auto",
            "--no-posix-lock --posix-lock",
        ] {
            assert!(warns(args), "{args}");
        }
    }

    #[test]
    fn neither_without_locks_nor_without_time_outs() {
        for args in [
            "",
            "--cache=always",
            "--posix-lock --cache=never",
            "--posix-lock --cache never",
            "--flock -o cache=none",
            "--posix-lock --no-posix-lock",
            "--posix-lock -o no_posix_lock",
            "--shared-dir --flock-of-sheep",
        ] {
            assert!(!warns(args), "{args}");
        }
    }

    #[test]
    fn the_warning_names_what_was_chosen_and_what_to_choose() {
        let warning = warning(&["--flock".into(), "--cache=always".into()]).unwrap();
        assert!(warning.starts_with("--flock with --cache=always: ") && warning.contains("--cache=never"), "{warning}");
        assert!(!warning.contains('\n'));
    }
}
