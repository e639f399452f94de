//! Shares that are added to a machine that stays: the options with which it was started apply to them.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use transom_vm::{Error, Result, Share, ShareArg, keep::ParseShare};

use super::{Run, disk::DiskArgs, hidden, is_host, values::guest_path};

/// The options of a machine, for its later shares.
#[derive(Debug)]
pub(super) struct LateShares {
    hide: Vec<PathBuf>,
    disk: DiskArgs,
    daemon_args: Vec<std::ffi::OsString>,
    has_host_root: bool,
}

impl LateShares {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            // Resolved once, and now: later, the guest may have moved the links on the way. What cannot be resolved is
            // refused at the start of the machine.
            hide: run.hide.iter().filter_map(|path| hidden::real(path).ok()).collect(),
            disk: run.disk.clone(),
            daemon_args: run.group_args().chain(run.daemon_args.iter().cloned()).collect(),
            has_host_root: run
                .root
                .as_ref()
                .is_some_and(|words| ShareArg::parse(words).is_ok_and(|root| is_host(&root.host))),
        }
    }
}

impl ParseShare for LateShares {
    fn parse(&self, words: &OsStr, writable: &[&Path]) -> Result<Share> {
        let parsed = ShareArg::parse(words)?;
        let typed = parsed.host.clone();
        if parsed.overlay.is_some() || parsed.dax.is_some() || parsed.image.is_some() {
            return Err(Error::Usage(format!(
                "share {words:?}: overlay and dax are for the shares of `transom run --keep`; stop the machine, and \
                 start it with this share"
            )));
        }
        // From here on, whatever the guest puts at its path is not followed.
        let mut share = parsed.open(|host: &Path| guest_path(host, self.has_host_root))?;
        if is_led_astray(&typed, &share.host, writable) {
            return Err(Error::Usage(format!(
                "share {typed:?}: it leads to {:?} by a link in a directory that the guest can write; if that is \
                 meant, share it by this path",
                share.host
            )));
        }
        share.daemon_args.extend(self.daemon_args.iter().cloned());
        hidden::hide_in(&mut share, &self.hide)?;
        self.disk.limit_rate([&mut share])?;
        if !share.is_read_only {
            self.disk.apply(std::slice::from_mut(&mut share))?;
        }
        Ok(share)
    }
}

/// Returns whether `typed` leads to `host` by a link, or by `..`, below one of the directories `writable`.
fn is_led_astray(typed: &Path, host: &Path, writable: &[&Path]) -> bool {
    typed.ancestors().skip(1).any(|above| {
        let (Ok(real), Ok(rest)) = (fs::canonicalize(above), typed.strip_prefix(above)) else { return false };
        writable.iter().any(|directory| real.starts_with(directory)) && real.join(rest) != host
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_the_guest_can_have_made_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let [work, secret, plain] = ["work", "secret", "work/plain"].map(|name| root.join(name));
        for path in [&work, &secret, &plain] {
            fs::create_dir(path).unwrap();
        }
        symlink(&secret, work.join("planted")).unwrap();
        symlink(&work, root.join("own")).unwrap();
        let is_led_astray = |path: &str| {
            let typed = root.join(path);
            is_led_astray(&typed, &fs::canonicalize(&typed).unwrap(), &[&work])
        };
        assert!(is_led_astray("work/planted"));
        assert!(is_led_astray("own/planted"), "a link of the host leads to the directory that the guest can write");
        assert!(!is_led_astray("work/plain") && !is_led_astray("own/plain") && !is_led_astray("secret"));
        assert!(!is_led_astray("own"), "nobody but the host can have made this link");
    }
}
