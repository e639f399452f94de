//! Images that umoci, buildah and skopeo have written. What umoci, or buildah's own storage, makes of an image is what
//! has to be in its root here.

#[path = "../common/mod.rs"]
mod common;
mod tree;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use common::{Archive, Quiet};
use tar::EntryType;
use tempfile::TempDir;
use transom_image::{Error, Result, Store, Unpacked};
use transom_vm::packages::{self, Cache, Closure, Freshness, Packages, Request};

/// A folder, and the programs that work in it.
struct Peers {
    folder: TempDir,
    programs: PathBuf,
    configuration: PathBuf,
}

impl Peers {
    /// Returns the programs, which are fetched unless they are in the cache, or prints why they cannot be had.
    fn find(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {test}: only root makes files of several owners and device nodes");
            return None;
        }
        let cache = env::var_os("TRANSOM_CACHE")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"), PathBuf::from);
        let cache = Cache::at(cache);
        let fetched = Packages::own_suite().and_then(|suite| {
            let packages = &["skopeo", "buildah", "umoci"];
            let (closure, freshness) = (Closure::WithDependencies, Freshness::Cached);
            let request = Request { suite: &suite, packages, closure, freshness };
            let prefix = Packages::new(&cache, &packages::Quiet).fetch(&request)?;
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let programs = folder.path().join("programs");
            fs::create_dir(&programs).unwrap();
            // Not by the packages' own loader: buildah starts itself again by /proc/self/exe.
            let libraries = env::join_paths(prefix.libraries()).unwrap();
            for name in packages {
                let program = prefix.root().join("usr/bin").join(name);
                let script = format!("#!/bin/sh\nLD_LIBRARY_PATH={libraries:?} exec {program:?} \"$@\"\n");
                fs::write(programs.join(name), script).unwrap();
                fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            }
            Ok(Self { folder, programs, configuration: prefix.root().join("etc/containers") })
        });
        fetched.map_err(|error| eprintln!("SKIPPED: {test}: {error}")).ok()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a script in the folder, and returns what it prints.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let storage = format!("[storage]\ndriver = \"vfs\"\nrunroot = {0:?}\ngraphroot = {0:?}\n", self.path("graph"));
        fs::write(self.path("storage.conf"), storage).unwrap();
        let search = env::join_paths(
            [self.programs.clone()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
        );
        let mut shell = Command::new("bash");
        shell.args(["-euc", script]).current_dir(self.folder.path()).env("PATH", search.unwrap());
        shell.env("POLICY", self.configuration.join("policy.json")).env("TMPDIR", self.folder.path());
        shell.env("CONTAINERS_REGISTRIES_CONF", self.configuration.join("registries.conf"));
        shell.env("CONTAINERS_STORAGE_CONF", self.path("storage.conf"));
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{said}{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    fn open(&self, image: &str, name: Option<&str>) -> Result<Unpacked> {
        Store::at(self.path("store")).open(&self.path(image), name, &Quiet)
    }

    /// Checks that an image becomes the tree at `expected`, when it is unpacked into a store that is empty.
    #[track_caller]
    fn is_like(&self, image: &str, name: Option<&str>, expected: &Path) -> Unpacked {
        let _ = fs::remove_dir_all(self.path("store"));
        let unpacked = self.open(image, name).unwrap();
        let (found, expected) = (tree::of(&unpacked.root), tree::of(expected));
        for (path, what) in &expected {
            assert_eq!(found.get(path), Some(what), "{image}: {}", path.display());
        }
        let more: Vec<_> = found.keys().filter(|path| !expected.contains_key(*path)).collect();
        assert!(more.is_empty(), "{image}: {more:?}");
        unpacked
    }
}

/// What the first layer has: set-id bits, owners, links, names, a pipe, device nodes, and a file that nobody may read.
const FIRST: &str = r#"
umoci init --layout layout
umoci new --image layout:one
umoci unpack --image layout:one first
cd first/rootfs
mkdir -p usr/bin usr/lib etc/conf.d dev home/me srv tree/a/b opaque/old
ln -s usr/lib lib && ln -s /etc etc-link && ln -s nowhere dangling
printf tool > usr/bin/tool && chmod 4755 usr/bin/tool && ln usr/bin/tool usr/bin/same
mkdir -m 2775 shared && mkdir -m 1777 tmp && mkdir -m 0700 root
printf secret > root/key && chmod 0000 root/key
printf mine > home/me/file && ln -s file home/me/link && chown -hR 1234:5678 home/me
printf latin > $'umlaut-\xfc'
printf utf > größe && printf line > $'two\nlines' && printf back > 'a\b'
long=$(printf 'x%.0s' $(seq 120)) && mkdir -p "$long/$long" && printf deep > "$long/$long/$long"
mkfifo -m 0640 pipe && mknod dev/null c 1 3 && mknod dev/disk b 8 0
printf gone > etc/gone && printf kept > etc/kept
printf first > etc/conf.d/first && printf b > tree/a/b/c
printf old > opaque/old/file && printf file > becomes-directory && mkdir becomes-file && printf x > becomes-file/x
head -c 300000 /dev/urandom > lib/big && truncate -s 1M lib/hole
touch -d @1600000000 etc/kept && touch -h -d @1500000000 dangling
cd ../.. && umoci repack --image layout:one first
"#;

/// What the second has: umoci writes the white-outs. The third is opaque.
const SECOND: &str = r#"
umoci unpack --image layout:one second
cd second/rootfs
rm etc/gone usr/bin/same && rm -r tree becomes-file becomes-directory
printf file > becomes-file && mkdir becomes-directory && printf in > becomes-directory/in
printf more >> etc/kept && ln etc/conf.d/first etc/conf.d/linked && chmod 0750 shared && printf big > usr/lib/big
cd ../.. && umoci repack --image layout:two second
mkdir insert && printf new > insert/new
umoci insert --opaque --image layout:two insert /opaque
"#;

/// Returns a layer that no tool would write: links to files of earlier layers, files below links, and links that lead
/// out of the root.
fn by_hand(outside: &Path) -> Vec<u8> {
    let outside = outside.to_str().unwrap();
    let mut archive = Archive::new();
    archive.link(EntryType::Link, "usr/bin/across", "usr/bin/tool").file("lib/through", 0o644, b"through");
    archive.file("etc-link/below", 0o600, b"below").link(EntryType::Symlink, "out", &format!("/..{outside}"));
    archive.directory(&outside[1..], 0o755).file("out/below", 0o644, b"inside");
    archive.raw(EntryType::Regular, "etc-link/.wh.kept", "", b"");
    archive.finish()
}

#[test]
fn images_of_umoci_in_every_form_that_skopeo_writes_are_what_umoci_makes_of_them() {
    let Some(peers) = Peers::find("images_of_umoci") else { return };
    peers.sh(FIRST);
    peers.sh(SECOND);
    let outside = peers.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(peers.path("hand.tar"), by_hand(&outside)).unwrap();
    peers.sh("umoci raw add-layer --image layout:two hand.tar
         umoci unpack --image layout:one expected-one
         umoci unpack --image layout:two expected
         umoci config --image layout:two --config.env A=b --config.user me --config.workingdir /srv \
             --config.entrypoint /entry --config.cmd argument
         copy='skopeo --insecure-policy copy --quiet'
         $copy oci:layout:two oci-archive:oci.tar:two
         $copy oci:layout:two docker-archive:docker.tar:name:tag
         $copy --dest-compress-format zstd --dest-compress oci:layout:two oci:zstd:two
         $copy oci:zstd:two oci-archive:zstd.tar
         $copy oci:layout:two dir:directory
         gzip -k docker.tar && gzip -k oci.tar");
    let zstd = peers.sh("cat zstd/blobs/sha256/* | LC_ALL=C grep -c -a $'\\x28\\xb5\\x2f\\xfd' || true");
    assert_ne!(zstd.trim(), "0", "skopeo has compressed nothing with zstd");

    peers.is_like("layout", Some("one"), &peers.path("expected-one/rootfs"));
    let expected = peers.path("expected/rootfs");
    let names = [Some("two"), None];
    for (image, name) in [
        ("layout", names[0]),
        ("oci.tar", None),
        ("oci.tar.gz", names[0]),
        ("docker.tar", Some("docker.io/library/name:tag")),
        ("docker.tar.gz", None),
        ("zstd", None),
        ("zstd.tar", None),
    ] {
        let unpacked = peers.is_like(image, name, &expected);
        assert_eq!(unpacked.devices, 2, "{image}");
        let config = &unpacked.config;
        assert_eq!((&*config.user, &*config.working_dir), ("me", "/srv"), "{image}");
        assert!(config.env.iter().any(|pair| pair == "A=b"), "{image}: {:?}", config.env);
        assert_eq!(config.command(), ["/entry", "argument"], "{image}");
    }
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    assert!(transom_image::is_image(&peers.path("directory")));
    let refused = peers.open("directory", None);
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("oci:DIR")), "{refused:?}");
}

#[test]
fn images_of_buildah_are_what_is_in_its_storage() {
    let Some(peers) = Peers::find("images_of_buildah") else { return };
    let mounted = peers.sh(r#"
        mkdir -p source/dir/deep source/gone && printf one > source/dir/deep/file && printf x > source/gone/x
        ln source/dir/deep/file source/hard && ln -s dir link && chmod 4755 source/hard && printf y > source/dir/y
        first=$(buildah from scratch)
        buildah copy --quiet "$first" source / >&2
        buildah config --env A=b --workingdir /srv --user me --entrypoint '["/entry"]' --cmd argument "$first"
        buildah commit --quiet --signature-policy "$POLICY" "$first" one >&2
        second=$(buildah from --signature-policy "$POLICY" localhost/one)
        root=$(buildah mount "$second")
        rm -r "$root/gone" && rm "$root/dir/y" && printf two > "$root/two" && chown 12:34 "$root/two"
        buildah commit --quiet --signature-policy "$POLICY" "$second" two >&2
        push() { buildah push --quiet --signature-policy "$POLICY" "$@" >&2; }
        push two oci:layout:two
        push two oci-archive:oci.tar:two
        push two docker-archive:docker.tar:name:two
        push --compression-format zstd two oci-archive:zstd.tar:two
        # The same files for two machines.
        case $(uname -m) in aarch64) here=arm64 ;; *) here=amd64 ;; esac
        buildah manifest create list >&2
        buildah manifest add --os linux --arch riscv64 list containers-storage:localhost/one >&2
        buildah manifest add --os linux --arch $here list containers-storage:localhost/two >&2
        buildah manifest push --quiet --all --signature-policy "$POLICY" list oci-archive:list.tar >&2
        buildah manifest push --quiet --all --signature-policy "$POLICY" list oci:list >&2
        buildah manifest create foreign >&2
        buildah manifest add --os linux --arch riscv64 foreign containers-storage:localhost/one >&2
        buildah manifest push --quiet --all --signature-policy "$POLICY" foreign oci-archive:foreign.tar >&2
        printf %s "$root"
        "#);
    let expected = Path::new(&mounted);
    assert!(expected.join("two").is_file() && !expected.join("gone").exists(), "{mounted}");
    for image in ["layout", "oci.tar", "docker.tar", "zstd.tar", "list.tar", "list"] {
        let unpacked = peers.is_like(image, None, expected);
        assert_eq!(unpacked.config.command(), ["/entry", "argument"], "{image}");
        assert_eq!(&*unpacked.config.user, "me", "{image}");
    }
    let refused = peers.open("foreign.tar", None);
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("riscv64")), "{refused:?}");
}
