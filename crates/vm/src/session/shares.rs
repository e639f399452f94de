//! Shares that are added to and taken from a machine that stays.
//!
//! QEMU gets the share first, which takes as long as the daemon does; then the guest mounts or unmounts, and says so.
//! Nothing waits for them. Once QEMU has it, a change whose deadline passes is answered with an error. What the guest
//! says later still counts. A share that is unmounted is [released](Release) step by step: QEMU forgets its device once
//! the guest has switched it off, and its daemon ends.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Session, watch_daemon};
use crate::{
    Error, Result, Share,
    event::Event,
    keep::{
        SharedDirectory,
        shares::{Asked, Change, ShareChanged},
    },
    machine::{
        Machine,
        ports::{Plug, PlugError, Plugged, Remains},
    },
    mount_points,
    protocol::{Mount, ShareChange, ToGuest},
};

/// How long QEMU may take to forget a device that the guest has released, and the daemon to end after that.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// How often a release is tried.
const RELEASE_EVERY: Duration = Duration::from_millis(20);
/// How long the guest may take with what no caller waits for.
const UNASKED_MAX: Duration = Duration::from_secs(60);

/// The shares of a machine that stays, as everybody may see them.
pub(crate) type SharedDirectories = Arc<Mutex<Published>>;

#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) shares: Vec<SharedDirectory>,
    /// The directories in which the guest can make links, those of shares that it is about to get among them.
    pub(crate) writable: Vec<PathBuf>,
}

/// The shares of a machine that stays.
#[derive(Debug, Default)]
pub(super) struct LateShares {
    added: Vec<(Share, Plugged)>,
    /// Shares that QEMU is about to get.
    plugging: Vec<(Share, Plugged, Asked)>,
    /// Changes that the guest makes.
    pending: Vec<Pending>,
    /// Shares that the guest has no longer.
    releases: Vec<Release>,
    /// The number of the last change.
    last: u64,
    published: SharedDirectories,
}

/// What is next of a change.
enum Begun {
    Plug((Share, Plugged, Plug)),
    Change((Kind, Share, Plugged, ShareChange)),
}

/// A change that the guest makes.
#[derive(Debug)]
struct Pending {
    number: u64,
    kind: Kind,
    share: Share,
    plugged: Plugged,
    /// Who waits for it.
    asked: Option<Asked>,
    /// The deadline; `None` once it has passed, or if it is beyond all times.
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Remove { is_forced: bool },
}

/// The rest of the removal of a share that the guest has unmounted.
#[derive(Debug)]
struct Release {
    share: Share,
    plugged: Plugged,
    asked: Option<Asked>,
    /// Why the share was not mounted, if it is released for that.
    failure: Option<String>,
    until: Instant,
}

impl LateShares {
    /// Returns when [`Session::share_times`] has something to do.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let pending = self.pending.iter().filter_map(|pending| pending.until);
        let releases = self.releases.first().map(|_| Instant::now() + RELEASE_EVERY);
        pending.chain(releases).min()
    }

    /// Returns the list that follows every change.
    pub(super) fn published(&self) -> SharedDirectories {
        Arc::clone(&self.published)
    }

    /// Returns whether the end of a daemon is that of a share that goes, or has gone.
    pub(super) fn is_expected_end(&self, daemon: usize) -> bool {
        !self.added.iter().any(|(_, plugged)| plugged.daemon == daemon)
            && !self.pending.iter().any(|pending| pending.plugged.daemon == daemon && pending.asked.is_some())
    }

    /// Takes the changes of a share that the guest was asked to make.
    fn take_pending(&mut self, tag: &str) -> Vec<Pending> {
        self.pending.extract_if(.., |pending| pending.plugged.tag == tag).collect()
    }
}

impl Session<'_> {
    /// Begins a change, or answers that it cannot be made.
    pub(super) fn change_share(&mut self, asked: Asked, machine: &mut Machine) {
        let begun = match &asked.change {
            Change::Add { share, writable } => self.begin_to_add(share, writable, machine).map(Begun::Plug),
            Change::Remove { path, is_forced } => self.begin_to_remove(path, *is_forced).map(Begun::Change),
        };
        match begun {
            Ok(Begun::Plug((share, plugged, plug))) => {
                let (sender, daemon) = (self.sender.clone(), plugged.daemon);
                self.late_shares.plugging.push((share, plugged, asked));
                self.publish();
                // Without a session the machine has ended.
                let done = move |outcome| drop(sender.send(Event::Plugged(daemon, outcome)));
                plug.start(done).unwrap_or_else(|error| self.plugged(daemon, Err(error), machine));
            }
            Ok(Begun::Change((kind, share, plugged, change))) => {
                let until = Instant::now().checked_add(asked.timeout);
                self.ask_guest(Pending { number: 0, kind, share, plugged, asked: Some(asked), until }, change);
            }
            Err(error) => answer(Some(asked), Err(error.to_string())),
        }
    }

    /// QEMU has got a share, or not. The guest is asked to mount it.
    pub(super) fn plugged(
        &mut self,
        daemon: usize,
        outcome: std::result::Result<(), PlugError>,
        machine: &mut Machine,
    ) {
        let plugging = &mut self.late_shares.plugging;
        let Some(at) = plugging.iter().position(|(_, plugged, _)| plugged.daemon == daemon) else { return };
        let (share, plugged, asked) = plugging.remove(at);
        if let Err(error) = machine.plugged(&plugged, outcome) {
            self.publish();
            return answer(Some(asked), Err(error.to_string()));
        }
        let mount = Mount {
            tag: plugged.tag.clone(),
            layer_tag: None,
            path: share.guest.clone().into(),
            is_read_only: share.is_read_only,
            options: String::new(),
        };
        let change = ShareChange::Mount { mount, port: plugged.port };
        let until = Instant::now().checked_add(asked.timeout);
        self.ask_guest(Pending { number: 0, kind: Kind::Add, share, plugged, asked: Some(asked), until }, change);
    }

    fn ask_guest(&mut self, pending: Pending, change: ShareChange) {
        self.late_shares.last += 1;
        let number = self.late_shares.last;
        self.late_shares.pending.push(Pending { number, ..pending });
        self.publish();
        self.send(&ToGuest::Share { number, change });
    }

    fn begin_to_add(
        &mut self,
        share: &Share,
        writable: &[PathBuf],
        machine: &mut Machine,
    ) -> Result<(Share, Plugged, Plug)> {
        if self.writable().iter().any(|directory| !writable.contains(directory)) {
            return Err(Error::Usage("another share was added at the same time; try again".into()));
        }
        self.check_place(share)?;
        let (plugged, plug) = machine.prepare_plug(self.spec, share)?;
        let pidfd = machine.late_daemons[&plugged.daemon].process.pidfd().try_clone_to_owned();
        watch_daemon(pidfd.map_err(Error::io("cannot watch the daemon"))?, plugged.daemon, self.sender.clone());
        Ok((share.clone(), plugged, plug))
    }

    fn begin_to_remove(&mut self, path: &Path, is_forced: bool) -> Result<(Kind, Share, Plugged, ShareChange)> {
        let is_it = |(share, _): &&(Share, Plugged)| share.guest == *path;
        let Some((share, plugged)) = self.late_shares.added.iter().find(is_it).cloned() else {
            return Err(Error::Usage(match self.spec.shares.iter().any(|share| share.guest == *path) {
                true => format!("the share at {path:?} was there at its start, and stays until it stops"),
                false => format!("no share is mounted at {path:?}: `transom ps` lists them"),
            }));
        };
        let kind = Kind::Remove { is_forced };
        let is_same = |pending: &Pending| pending.plugged.tag == plugged.tag;
        let is_refused = |pending: &Pending| is_same(pending) && (!is_forced || pending.kind == kind);
        if self.late_shares.pending.iter().any(is_refused) {
            return Err(Error::Usage(format!(
                "the share at {path:?} is being removed already; --force does not wait for the guest"
            )));
        }
        if let Some(inner) = self.guests().find(|other| *other != path && other.starts_with(path)) {
            return Err(Error::Usage(format!("another share is mounted in it, at {inner:?}; remove that first")));
        }
        let change = ShareChange::Unmount { tag: plugged.tag.clone(), port: plugged.port, is_forced };
        Ok((kind, share, plugged, change))
    }

    /// The guest has made a change, or not.
    pub(super) fn share_changed(&mut self, number: u64, error: Option<String>) {
        let late = &mut self.late_shares;
        let Some(at) = late.pending.iter().position(|pending| pending.number == number) else { return };
        let Pending { kind, share, plugged, asked, .. } = late.pending.remove(at);
        match (kind, error) {
            (Kind::Add, None) if asked.is_some() => {
                late.added.push((share.clone(), plugged));
                self.publish();
                answer(asked, Ok(ShareChanged { share: SharedDirectory::of(&share), warning: None }));
            }
            // Nobody waits for it any more: it goes again.
            (Kind::Add, None) => {
                let change = ShareChange::Unmount { tag: plugged.tag.clone(), port: plugged.port, is_forced: true };
                let until = Some(Instant::now() + UNASKED_MAX);
                let kind = Kind::Remove { is_forced: true };
                self.ask_guest(Pending { number: 0, kind, share, plugged, asked: None, until }, change);
            }
            (Kind::Add, Some(why)) => self.release(share, plugged, asked, Some(why)),
            (Kind::Remove { .. }, None) => self.release(share, plugged, asked, None),
            // It is still mounted.
            (Kind::Remove { .. }, Some(why)) => answer(asked, Err(why)),
        }
    }

    /// Begins to release a share that the guest has no longer.
    fn release(&mut self, share: Share, plugged: Plugged, asked: Option<Asked>, failure: Option<String>) {
        let others = self.late_shares.take_pending(&plugged.tag);
        others.into_iter().for_each(|other| answer(other.asked, Err("it was removed meanwhile".into())));
        self.late_shares.added.retain(|(_, other)| other.tag != plugged.tag);
        self.publish();
        let until = Instant::now() + RELEASE_MAX;
        self.late_shares.releases.push(Release { share, plugged, asked, failure, until });
    }

    /// Goes on with releases, and answers those whose deadline has passed.
    pub(super) fn share_times(&mut self, machine: &mut Machine) {
        let releases = std::mem::take(&mut self.late_shares.releases);
        for mut release in releases {
            let result = match machine.release(&release.plugged) {
                Ok(Remains::Unknown) => {
                    release.until = Instant::now() + RELEASE_MAX;
                    self.late_shares.releases.push(release);
                    continue;
                }
                Ok(Remains::Device | Remains::Daemon) if Instant::now() < release.until => {
                    self.late_shares.releases.push(release);
                    continue;
                }
                // Without a device it serves nobody.
                Ok(Remains::Daemon | Remains::Nothing) => Ok(()),
                Ok(Remains::Device) => {
                    Err(format!("its guest has not switched the device off for {} s", RELEASE_MAX.as_secs()))
                }
                Err(error) => Err(error.to_string()),
            };
            machine.abandon(&release.plugged);
            answer(
                release.asked,
                match (release.failure, result) {
                    (Some(why), _) => Err(why),
                    (None, Ok(())) => Ok(ShareChanged { share: SharedDirectory::of(&release.share), warning: None }),
                    (None, Err(why)) => Ok(abandoned(&release.share, &why)),
                },
            );
        }
        let now = Instant::now();
        while let Some(at) =
            self.late_shares.pending.iter().position(|pending| pending.until.is_some_and(|until| until <= now))
        {
            let pending = self.late_shares.pending.remove(at);
            self.expired(pending, machine);
        }
    }

    /// The guest has not answered in time.
    fn expired(&mut self, mut pending: Pending, machine: &mut Machine) {
        let asked = pending.asked.take();
        let seconds = asked.as_ref().map_or(UNASKED_MAX, |asked| asked.timeout).as_secs_f32();
        let (share, plugged) = (&pending.share, &pending.plugged);
        match pending.kind {
            Kind::Add => {
                // The caller is told that it is not shared.
                machine.abandon(plugged);
                answer(
                    asked,
                    Err(format!(
                        "its guest has not mounted {:?} within {seconds} s, and cannot any more: it is busy, or does \
                         not answer; try again, with a longer --timeout",
                        share.host
                    )),
                );
            }
            Kind::Remove { is_forced: false } => answer(
                asked,
                Err(format!(
                    "its guest has not written back and unmounted {:?} within {seconds} s; it goes on, and `transom \
                     ps` shows when it is done; --force does not wait for what is not written",
                    share.guest
                )),
            ),
            Kind::Remove { is_forced: true } => {
                machine.abandon(plugged);
                let why = format!("its guest has not answered within {seconds} s");
                answer(asked, Ok(abandoned(share, &why)));
                let tag = plugged.tag.clone();
                let others = self.late_shares.take_pending(&tag);
                others.into_iter().for_each(|other| answer(other.asked, Err("it was removed by force".into())));
                self.late_shares.added.retain(|(_, other)| other.tag != tag);
                self.publish();
                return;
            }
        }
        // What the guest says later still counts.
        pending.until = None;
        self.late_shares.pending.push(pending);
    }

    /// Shows everybody the shares of the machine.
    pub(super) fn publish(&self) {
        let late = self.late_shares.added.iter().map(|(share, _)| share);
        let shares = self.spec.shares.iter().chain(late).map(SharedDirectory::of).collect();
        let published = Published { shares, writable: self.writable() };
        *self.late_shares.published.lock().unwrap_or_else(PoisonError::into_inner) = published;
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
    fn writable(&self) -> Vec<PathBuf> {
        // One that nobody waits for any more may be mounted until the guest has let it go.
        let late = self.late_shares.added.iter().map(|(share, _)| share);
        let pending = self.late_shares.pending.iter().map(|pending| &pending.share);
        let plugging = self.late_shares.plugging.iter().map(|(share, ..)| share);
        let shares = self.spec.shares.iter().chain(late).chain(pending).chain(plugging);
        let is_writable = |share: &&Share| !share.is_read_only && share.layer.is_none();
        shares.filter(is_writable).map(|share| share.host.clone()).collect()
    }

    /// Returns where shares are mounted, or about to be.
    fn guests(&self) -> impl Iterator<Item = &Path> {
        self.all_shares().map(|share: &Share| -> &PathBuf { &share.guest }).map(PathBuf::as_path)
    }

    fn all_shares(&self) -> impl Iterator<Item = &Share> {
        let late = self.late_shares.added.iter().map(|(share, _)| share);
        // One that nobody waits for any more goes again, and takes no path.
        let is_coming = |pending: &&Pending| pending.kind == Kind::Add && pending.asked.is_some();
        let coming = self.late_shares.pending.iter().filter(is_coming);
        let plugging = self.late_shares.plugging.iter().map(|(share, ..)| share);
        self.spec.shares.iter().chain(late).chain(coming.map(|pending| &pending.share)).chain(plugging)
    }
}

/// Returns the answer about a share that the guest may still have a device of, which leads to no daemon.
fn abandoned(share: &Share, why: &str) -> ShareChanged {
    let warning =
        format!("{why}: the daemon was killed, and the device takes the place of a share until the guest lets it go");
    ShareChanged { share: SharedDirectory::of(share), warning: Some(warning) }
}

/// Answers whoever has asked. The caller may have gone.
fn answer(asked: Option<Asked>, answer: std::result::Result<ShareChanged, String>) {
    if let Some(asked) = asked {
        let _ = asked.answer.send(answer);
    }
}
