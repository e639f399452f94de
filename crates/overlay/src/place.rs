//! Where the overlays of this user are, and who uses one.
//!
//! Each shared directory has a directory of this user's state, named after it and a digest of its path: `layers` with
//! `upper` and `work` for the kernel, to which a guest may write whatever it likes, and what it cannot reach: `origin`
//! that names the directory, `record` of what it was like, `hidden` of what the guest does not see, `intent` of what
//! has begun.
//! A lock beside it is held by every run and command that uses the overlay; the daemon of a run inherits it, so that it
//! is free only when the daemon has ended too.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Change, Error, Result, attributes, clear,
    hidden::Hidden,
    layers::{self, UPPER, WORK},
    origin::Origin,
    record::Record,
    state::{beside, canonical, check_private, key, lock, prepare, private, resolved, state},
    tree::Tree,
    walk::{Found, walk},
};

/// The directory of the two layers, in that of an overlay.
const LAYERS: &str = "layers";

/// How long a command waits for another to leave the overlay: the daemon of a run ends a moment after its guest.
const LEAVES_MAX: Duration = Duration::from_secs(2);
/// As that, where it is known that the run has ended.
const ENDS_MAX: Duration = Duration::from_secs(20);

/// A directory and what a guest has changed in it, for the use of this process alone.
#[derive(Debug)]
pub struct Overlay {
    directory: PathBuf,
    state: PathBuf,
    lock: File,
    remark: Option<String>,
    is_replaced: bool,
    /// Where file systems are mounted in the directory, if this is for a run.
    mount_points: Vec<PathBuf>,
}

/// Returns the directory at or above `directory` that has an overlay, if there is one.
///
/// # Errors
/// If there is no place for this user's state.
pub fn containing(directory: &Path) -> Result<Option<PathBuf>> {
    let state = state()?;
    let mut above = directory.ancestors();
    Ok(above.find(|above| has_layers(&state.join(key(above)))).map(Path::to_owned))
}

/// Calls `visit` with each overlay of this user, sorted by their directories. [`Error::InUse`] stands for one that is
/// in use. Only the one that is visited is locked.
///
/// # Errors
/// If the place for this user's state cannot be read.
pub fn visit_all(visit: impl FnMut(&Path, Result<Overlay>)) -> Result<()> {
    visit_all_in(&state()?, visit)
}

pub(crate) fn visit_all_in(place: &Path, mut visit: impl FnMut(&Path, Result<Overlay>)) -> Result<()> {
    let failed = || format!("cannot read {place:?}");
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::io(failed))?,
    };
    check_private(place)?;
    let mut found = Vec::new();
    for entry in entries {
        let state = entry.map_err(Error::io(failed))?.path();
        if !has_layers(&state) {
            continue;
        }
        match Origin::read(&state.join("origin")) {
            // One that is being made, or deleted, has another name.
            Ok(origin) if state.ends_with(key(&origin.path)) => found.push((origin.path, Ok(state))),
            Ok(_) => {}
            Err(error) => found.push((state, Err(error))),
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (directory, state) in found {
        let opened = state.and_then(|state| Overlay::existing(state, directory.clone(), Duration::ZERO)).transpose();
        // Another command may have discarded it by now.
        if let Some(opened) = opened {
            visit(&directory, opened);
        }
    }
    Ok(())
}

/// Returns whether there is an overlay in `state`, also one of a version that had its layers beside the other files.
fn has_layers(state: &Path) -> bool {
    state.join(LAYERS).is_dir() || state.join(UPPER).is_dir()
}

impl Overlay {
    /// Opens the overlay of `directory`, if there is one. [`Overlay::remark`] tells of a command that was stopped, and
    /// of a directory that is not the one in which the guest made its changes. The directory may be gone.
    ///
    /// # Errors
    /// [`Error::InUse`]; others if there is no such directory, and never was, or the overlay cannot be read.
    pub fn open(directory: &Path) -> Result<Option<Self>> {
        Self::open_in(&state()?, directory)
    }

    pub(crate) fn open_in(place: &Path, directory: &Path) -> Result<Option<Self>> {
        let real = resolved(directory);
        let state = place.join(key(&real));
        let is_left = |path: &Path| fs::symlink_metadata(path).is_ok();
        if !is_left(&state) && !is_left(&beside(&state, ".gone")) {
            return canonical(directory).map(|_| None);
        }
        check_private(place)?;
        Self::existing(state, real, LEAVES_MAX)
    }

    /// Opens the overlay at `state`, unless it has been discarded.
    fn existing(state: PathBuf, directory: PathBuf, wait: Duration) -> Result<Option<Self>> {
        let lock = lock(&state, &directory, wait)?;
        let mut overlay = Self { directory, state, lock, remark: None, is_replaced: false, mount_points: Vec::new() };
        overlay.gather_layers()?;
        overlay.remark = overlay.recover();
        if !overlay.state.is_dir() {
            return Ok(None);
        }
        if let Err(error @ Error::Replaced(_)) = overlay.check_origin() {
            overlay.remark = Some(error.to_string());
            overlay.is_replaced = true;
        }
        Ok(Some(overlay))
    }

    /// Moves the layers of a version that had them beside the other files to where they are now.
    fn gather_layers(&self) -> Result<()> {
        let layers = self.layers();
        if !self.state.join(UPPER).is_dir() {
            return Ok(());
        }
        let failed = || format!("cannot move the layers in {:?}", self.state);
        private().recursive(true).create(&layers).map_err(Error::io(failed))?;
        // The one by which this is recognised comes last.
        for name in [WORK, UPPER] {
            match fs::rename(self.state.join(name), layers.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(failed)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the directory is the one that the overlay was made for.
    pub(crate) fn check_origin(&self) -> Result<()> {
        match Origin::read(&self.state.join("origin"))?.is_unchanged()? {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Replaced(self.directory.clone())),
            None => Err(Error::Missing(self.directory.clone())),
        }
    }

    /// Opens the overlay of `directory` for a run; makes one if it is missing.
    ///
    /// # Errors
    /// As [`Overlay::open`], if the overlay would be in the directory, and [`Error::Replaced`].
    pub fn for_run(directory: &Path) -> Result<Self> {
        Self::for_run_in(&state()?, directory)
    }

    pub(crate) fn for_run_in(place: &Path, directory: &Path) -> Result<Self> {
        let directory = canonical(directory)?;
        if place.starts_with(&directory) {
            return Err(Error::Place(format!(
                "the changes in {} would be kept in {}, which is in it: set XDG_STATE_HOME to a directory outside",
                directory.display(),
                place.display()
            )));
        }
        prepare(place)?;
        let state = place.join(key(&directory));
        let lock = lock(&state, &directory, LEAVES_MAX)?;
        let mut overlay = Self { directory, state, lock, remark: None, is_replaced: false, mount_points: Vec::new() };
        overlay.gather_layers()?;
        overlay.remark = overlay.recover();
        // The guest goes on with what is left, and the host may change the rest: nobody can tell later what the commit
        // has written.
        overlay.drop_commit();
        if !overlay.state.is_dir() {
            overlay.create().map_err(Error::io(|| format!("cannot make {:?}", overlay.state)))?;
        }
        overlay.check_origin()?;
        layers::tidy(&overlay.layers())?;
        let (record, mount_points) = overlay.record()?.renewed(&overlay.lower()?, &overlay.upper()?)?;
        record.write(&overlay.state.join("record"))?;
        Ok(Self { mount_points, ..overlay })
    }

    /// Prepares the layers for a guest that mounts them itself, and from which the paths `hidden` are hidden; they
    /// begin at the directory. No command will ever change what is there.
    ///
    /// # Errors
    /// [`Error::MountedBelow`], unless the file system is hidden; or if the layers cannot be changed.
    pub fn for_guest(&self, hidden: &[PathBuf]) -> Result<()> {
        let is_hidden = |place: &PathBuf| hidden.iter().any(|path| place.starts_with(path));
        if let Some(place) = self.mount_points.iter().find(|place| !is_hidden(place)) {
            return Err(Error::MountedBelow(self.directory.join(place)));
        }
        let mut known = self.hidden()?;
        if known.add(hidden) {
            known.write(&self.state.join("hidden"))?;
        }
        let (upper, lower) = (self.upper()?, self.lower()?);
        layers::check_file_system(&self.layers())?;
        layers::forget_origins(&upper)?;
        hidden.iter().try_for_each(|path| layers::make_way(&upper, &lower, path))
    }

    /// Returns the shared directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory with the layers: for `transomd --overlay`, or as a share of its own.
    pub fn layers(&self) -> PathBuf {
        self.state.join(LAYERS)
    }

    /// Returns what there is to say about a command that was stopped.
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Returns whether the directory is another than the one in which the guest made its changes.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    pub(crate) fn set_remark(&mut self, remark: String) {
        self.remark = Some(remark);
    }

    /// Returns another reference to the lock, for a daemon to inherit.
    ///
    /// # Errors
    /// If this process has no descriptor left.
    pub fn held(&self) -> Result<OwnedFd> {
        Ok(self.lock.try_clone().map_err(Error::io(|| "cannot duplicate a descriptor".into()))?.into())
    }

    /// Waits until all daemons of the run have ended.
    ///
    /// # Errors
    /// [`Error::InUse`] if another command is faster.
    pub fn after_run(self) -> Result<Self> {
        let Self { directory, state, lock: held, .. } = self;
        drop(held);
        let lock = lock(&state, &directory, ENDS_MAX)?;
        Ok(Self { directory, state, lock, remark: None, is_replaced: false, mount_points: Vec::new() })
    }

    /// Returns what the guest has changed, sorted by path.
    ///
    /// # Errors
    /// [`Error::Missing`], and if a file cannot be read.
    pub fn changes(&self) -> Result<Vec<Change>> {
        Ok(if self.state.is_dir() { self.compared()?.changes } else { Vec::new() })
    }

    /// Compares both layers.
    pub(crate) fn compared(&self) -> Result<Found> {
        walk(&self.upper()?, &self.lower()?, &self.record()?, &self.hidden()?)
    }

    pub(crate) fn upper(&self) -> Result<Tree> {
        // A guest that has them as a share can change the mode, as it can that of anything there.
        let _ = fs::set_permissions(self.layers(), fs::Permissions::from_mode(0o700));
        match Tree::open_private(&self.layers().join(UPPER)) {
            Err(Error::Io { source, .. }) if layers::is_destroyed(&source) => {
                Err(Error::Layers(self.directory.clone()))
            }
            opened => opened,
        }
    }

    pub(crate) fn hidden(&self) -> Result<Hidden> {
        Hidden::read(&self.state.join("hidden"))
    }

    pub(crate) fn lower(&self) -> Result<Tree> {
        if !self.directory.is_dir() {
            return Err(Error::Missing(self.directory.clone()));
        }
        Tree::open(&self.directory)
    }

    pub(crate) fn record(&self) -> Result<Record> {
        Record::read(&self.state.join("record"))
    }

    pub(crate) fn intent_path(&self) -> PathBuf {
        self.state.join("intent")
    }

    pub(crate) fn forget_intent(&self) -> Result<()> {
        let path = self.intent_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(|| format!("cannot remove {path:?}"))(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns an empty directory for what is to be deleted.
    pub(crate) fn trash(&self) -> Result<PathBuf> {
        let path = self.state.join("trash");
        clear::delete(&path)?;
        private().create(&path).map_err(Error::io(|| format!("cannot make {path:?}")))?;
        Ok(path)
    }

    /// Returns the name under which the whole overlay is deleted.
    pub(crate) fn gone_path(&self) -> PathBuf {
        beside(&self.state, ".gone")
    }

    /// Takes all layers away at once.
    pub(crate) fn leave(&self) -> Result<()> {
        let failed = || format!("cannot rename {:?}", self.state);
        fs::rename(&self.state, self.gone_path()).map_err(Error::io(failed))
    }

    fn create(&self) -> io::Result<()> {
        let unnamed = beside(&self.state, ".new");
        clear::delete(&unnamed).map_err(io::Error::other)?;
        private().create(&unnamed)?;
        let layers = unnamed.join(LAYERS);
        private().create(&layers)?;
        private().create(layers.join(UPPER))?;
        private().create(layers.join(WORK))?;
        Origin::of(&self.directory).map_err(io::Error::other)?.write(&unnamed.join("origin"))?;
        // The guest sees the upper layer's attributes at the root of the share.
        let nodes = |path: &Path| Tree::open(path)?.node(Path::new(""));
        let from = nodes(&self.directory).map_err(io::Error::other)?;
        let to = nodes(&layers.join(UPPER)).map_err(io::Error::other)?;
        if let (Some(from), Some(to)) = (from, to) {
            attributes::carry(&from, &to)?;
        }
        fs::rename(unnamed, &self.state)
    }
}
