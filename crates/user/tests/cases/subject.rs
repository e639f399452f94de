//! A share, mounted by this process, as the place where cases run.

use std::sync::Arc;

use transom_conformance::{
    client::{Client, Identity},
    runner::Subject,
    split::Split,
};
use transom_guest::{
    cache::{CacheMode, CacheOptions},
    dax::{Dax, DaxOptions},
    fs::Fs,
    session::SessionConfig,
};
use transom_user::{platform::Process, share::Share};
use transom_wire::ops::init::InitFlags;

use crate::{program::Program, vfs::Vfs};

/// Every case gets a directory in the share's root.
pub(crate) struct Directories {
    vfs: Vfs,
}

impl Directories {
    pub(crate) fn new(mount: &Share) -> Self {
        // Set-id bits are the server's to clear: it does so where this guest, which asks for attributes each time,
        // could not.
        let config = SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2);
        Self { vfs: Vfs::new(Arc::new(mount.session(config).unwrap())) }
    }
}

impl Subject for Directories {
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()> {
        let who = Identity { uid: 0, gid: 0, groups: Vec::new() };
        let init = self.vfs.init(who.clone());
        let path = name.replace('/', ".").into_bytes();
        init.mkdir(&path, 0o755)?;
        let process = self.vfs.process_in(&init, &path, who)?;
        body(&process);
        process.exit();
        Ok(())
    }
}

/// The same for a program that uses the library by paths.
pub(crate) struct Paths {
    fs: Fs<Process>,
}

impl Paths {
    pub(crate) fn new(mount: &Share) -> Self {
        let config = SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2);
        Self { fs: Fs::mount(mount.session(config).unwrap(), CacheOptions::default()) }
    }

    /// Everything is cached for as long as the version table of the daemon's group says.
    pub(crate) fn shared(mount: &Share) -> Self {
        let config = SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2);
        assert!(mount.versions().is_some(), "the daemon is in a group");
        let options = CacheOptions { mode: CacheMode::Shared, ..CacheOptions::default() };
        Self { fs: Fs::new(Arc::new(mount.volume(config, options, DaxOptions::default()).unwrap())) }
    }

    /// Everything is cached until this guest changes it.
    pub(crate) fn always(mount: &Share) -> Self {
        let config = SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2);
        let options = CacheOptions { mode: CacheMode::Always, ..CacheOptions::default() };
        Self { fs: Fs::mount(mount.session(config).unwrap(), options) }
    }

    /// Every file is mapped through the window.
    pub(crate) fn mapped(mount: &Share) -> Self {
        let config = SessionConfig::default().with(InitFlags::HANDLE_KILLPRIV_V2);
        let dax = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
        let volume = mount.volume(config, CacheOptions::default(), dax).unwrap();
        assert!(volume.window().is_some(), "the daemon has a window");
        Self { fs: Fs::new(Arc::new(volume)) }
    }
}

impl Subject for Paths {
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()> {
        let path = name.replace('/', ".").into_bytes();
        self.fs.create_dir(&path, 0o755)?;
        let program = Program::new(&self.fs, &path)?;
        body(&program);
        program.exit();
        Ok(())
    }
}

/// Two guests of one directory: one acts, the other looks.
pub(crate) struct Guests {
    acting: Paths,
    looking: Paths,
}

impl Guests {
    pub(crate) fn new(acting: Paths, looking: Paths) -> Self {
        Self { acting, looking }
    }
}

impl Subject for Guests {
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()> {
        let path = name.replace('/', ".").into_bytes();
        self.acting.fs.create_dir(&path, 0o755)?;
        let [acting, looking] = [&self.acting, &self.looking].map(|guest| Program::new(&guest.fs, &path));
        let (acting, looking) = (acting?, looking?);
        body(&Split::new(&acting, &looking, b"", None));
        acting.exit();
        looking.exit();
        Ok(())
    }
}
