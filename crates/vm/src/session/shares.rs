//! Shares that are added to and taken from a machine that stays.
//!
//! One change is made at a time. The host's part of it is done at once; then the guest mounts or unmounts, and says so.

use std::path::{Path, PathBuf};

use super::{Session, watch_daemon};
use crate::{
    Error, Result, Share,
    keep::{
        Keeper, SharedDirectory,
        shares::{Asked, ShareRequest},
    },
    machine::{Machine, ports::Plugged},
    mount_points,
    protocol::{Mount, ShareChange, ToGuest},
};

/// The shares of a machine that stays.
#[derive(Debug, Default)]
pub(super) struct LateShares {
    added: Vec<(Share, Plugged)>,
    pending: Option<Pending>,
    /// Daemons whose end is expected.
    ending: Vec<usize>,
}

/// A change that the guest makes.
#[derive(Debug)]
struct Pending {
    asked: Asked,
    share: Share,
    plugged: Plugged,
}

impl Session<'_> {
    /// Begins a change, or answers that it cannot be made.
    pub(super) fn change_share(&mut self, asked: Asked, machine: &mut Machine) {
        let begun = match (&self.late_shares.pending, self.keeper) {
            (Some(_), _) => Err(Error::Usage("another share is being added or removed; try again".into())),
            (None, None) => Err(Error::Usage("it is not kept".into())),
            (None, Some(keeper)) => self.begin_change(&asked.request, keeper, machine),
        };
        match begun {
            Ok((share, plugged)) => self.late_shares.pending = Some(Pending { asked, share, plugged }),
            // The caller may have gone.
            Err(error) => drop(asked.answer.send(Err(error.to_string()))),
        }
    }

    fn begin_change(
        &mut self,
        request: &ShareRequest,
        keeper: &Keeper<'_>,
        machine: &mut Machine,
    ) -> Result<(Share, Plugged)> {
        match request {
            ShareRequest::Add(words) => {
                let share = keeper.parse.parse(words, &self.writable())?;
                self.check_place(&share)?;
                let plugged = machine.plug(self.spec, &share)?;
                let pidfd = machine.daemons[plugged.daemon].process.pidfd().try_clone_to_owned();
                watch_daemon(pidfd.map_err(Error::io("cannot watch the daemon"))?, plugged.daemon, self.sender.clone());
                let mount = Mount {
                    tag: plugged.tag.clone(),
                    layer_tag: None,
                    path: share.guest.clone().into(),
                    is_read_only: share.is_read_only,
                    options: String::new(),
                };
                self.send(&ToGuest::Share(ShareChange::Mount { mount, port: plugged.port }));
                Ok((share, plugged))
            }
            ShareRequest::Remove(path) => {
                let is_it = |(share, _): &&(Share, Plugged)| share.guest == *path;
                let Some((share, plugged)) = self.late_shares.added.iter().find(is_it).cloned() else {
                    return Err(Error::Usage(match self.spec.shares.iter().any(|share| share.guest == *path) {
                        true => format!("the share at {path:?} was there at its start, and stays until it stops"),
                        false => format!("no share is mounted at {path:?}: `transom ps` lists them"),
                    }));
                };
                if let Some(inner) = self.guests().find(|other| other != path && other.starts_with(path)) {
                    return Err(Error::Usage(format!(
                        "another share is mounted in it, at {inner:?}; remove that first"
                    )));
                }
                self.send(&ToGuest::Share(ShareChange::Unmount { path: path.clone().into(), port: plugged.port }));
                Ok((share, plugged))
            }
        }
    }

    /// The guest has made the change, or not.
    pub(super) fn share_changed(&mut self, error: Option<String>, machine: &mut Machine) {
        let Some(Pending { asked, share, plugged }) = self.late_shares.pending.take() else { return };
        let is_added = matches!(asked.request, ShareRequest::Add(_));
        let answer = match error {
            None if is_added => {
                self.late_shares.added.push((share.clone(), plugged));
                Ok(SharedDirectory::of(&share))
            }
            // It is still mounted.
            Some(why) if !is_added => Err(why),
            // Not mounted any more, or not at all.
            error => {
                self.late_shares.added.retain(|(_, other)| other.tag != plugged.tag);
                self.late_shares.ending.push(plugged.daemon);
                match (machine.unplug(&plugged), error) {
                    (_, Some(why)) => Err(why),
                    (Err(error), None) => Err(format!("it is unmounted, but its device stays: {error}")),
                    (Ok(()), None) => Ok(SharedDirectory::of(&share)),
                }
            }
        };
        let _ = asked.answer.send(answer);
    }

    /// Returns whether the end of a daemon is that of a share that was removed.
    pub(super) fn is_expected_end(&self, daemon: usize) -> bool {
        self.late_shares.ending.contains(&daemon)
    }

    /// Refuses a share that would hide another one, or be hidden.
    fn check_place(&self, share: &Share) -> Result<()> {
        if share.dax.is_some() || share.layer.is_some() {
            return Err(Error::Usage("a share with overlay or dax can only be given to `transom run --keep`".into()));
        }
        mount_points::checked(&share.guest).map_err(Error::Usage)?;
        match self.guests().find(|other| other.starts_with(&share.guest)) {
            None => Ok(()),
            Some(other) => Err(Error::Usage(format!(
                "a share at {:?} would hide the one at {other:?}; choose another path, as in {}:/mnt/OTHER",
                share.guest,
                share.host.display()
            ))),
        }
    }

    /// Returns the directories of this machine in which the guest can make links.
    fn writable(&self) -> Vec<&Path> {
        let late = self.late_shares.added.iter().map(|(share, _)| share);
        let shares = self.spec.shares.iter().chain(late).filter(|share| !share.is_read_only && share.layer.is_none());
        shares.map(|share| share.host.as_path()).collect()
    }

    /// Returns where shares are mounted.
    fn guests(&self) -> impl Iterator<Item = &Path> {
        let shares = self.spec.shares.iter().chain(self.late_shares.added.iter().map(|(share, _)| share));
        shares.map(|share: &Share| -> &PathBuf { &share.guest }).map(PathBuf::as_path)
    }
}
