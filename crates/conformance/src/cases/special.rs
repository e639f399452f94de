//! Fifos, sockets, devices.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use super::prelude::*;

pub(super) const CASES: &[Definition] = &[
    case("special/mknod-makes-each-type-with-its-mode", types),
    case("special/mknod-of-a-device-is-root's-and-keeps-its-number", devices),
    case("special/mknod-refuses-taken-names-and-directories", errors),
    case("special/a-fifo-carries-bytes-between-two-handles", fifo),
    case("special/a-fifo-without-a-reader-is-enxio", fifo_alone),
    case("special/a-socket-is-bound-and-connected-by-its-name", socket),
    case("special/a-bound-socket-has-type-and-mode-and-is-not-opened", socket_file),
    case("special/a-character-device-is-opened-for-what-it-is", device_use),
    case("special/types-without-data-have-size-zero", sizes),
];

fn types(t: &Case<'_>) -> Outcome {
    t.umask(0);
    t.step("a file, a fifo, a socket");
    for (name, kind) in [("f", FileType::RegularFile), ("p", FileType::Fifo), ("s", FileType::Socket)] {
        t.mknod(name, kind, 0o654, (0, 0))?;
        let attr = t.lstat(name)?;
        equal("type", attr.kind(), kind)?;
        equal("permissions", attr.permissions(), 0o654)?;
        equal("links", attr.nlink, 1)?;
    }
    t.step("the file is one to write to");
    t.open("f", OFlags::RDWR)?.write_at("data", 0)?;
    same_data("data", &t.get("f")?, b"data")
}

fn devices(t: &Case<'_>) -> Outcome {
    t.step("an ordinary user");
    t.chmod(".", 0o777)?;
    t.ordinary(|t| refused(t.mknod("c", FileType::CharacterDevice, 0o666, (1, 3)), Errno::PERM))?;
    t.step("a character device 0:0 is anyone's: overlays use it");
    t.ordinary(|t| Ok(t.mknod("whiteout", FileType::CharacterDevice, 0o600, (0, 0))?))?;
    t.require_root()?;
    t.step("root: large numbers too");
    for (name, kind, number) in [
        ("null", FileType::CharacterDevice, (1, 3)),
        ("large", FileType::CharacterDevice, (4000, 1_000_000)),
        ("block", FileType::BlockDevice, (7, 200)),
    ] {
        match t.mknod(name, kind, 0o600, number) {
            Err(Errno::PERM) => return Err(Stop::skip("this root may not make devices")),
            other => other?,
        }
        let attr = t.stat(name)?;
        equal("type", attr.kind(), kind)?;
        equal("number", attr.rdev, number)?;
    }
    Ok(())
}

fn errors(t: &Case<'_>) -> Outcome {
    t.put("f", "x")?;
    t.step("each with its error");
    refused(t.mknod("f", FileType::Fifo, 0o600, (0, 0)), Errno::EXIST)?;
    refused(t.mknod("missing/p", FileType::Fifo, 0o600, (0, 0)), Errno::NOENT)?;
    refused(t.mknod("f/p", FileType::Fifo, 0o600, (0, 0)), Errno::NOTDIR)?;
    refused(t.mknod("d", FileType::Directory, 0o700, (0, 0)), Errno::PERM)?;
    refused(t.mknod("l", FileType::Symlink, 0o700, (0, 0)), Errno::INVAL)
}

fn fifo(t: &Case<'_>) -> Outcome {
    t.mknod("p", FileType::Fifo, 0o600, (0, 0))?;
    t.step("a reader that does not wait, a writer");
    let reader = t.open("p", OFlags::RDONLY | OFlags::NONBLOCK)?;
    let writer = t.open("p", OFlags::WRONLY)?;
    refused(reader.read(10), Errno::AGAIN)?;
    writer.write("through")?;
    same_data("data", &reader.read(100)?, b"through")?;
    refused(reader.seek(SeekFrom::Start(0)), Errno::SPIPE)?;
    writer.close()?;
    same_data("at the end", &reader.read(100)?, b"")?;
    t.step("by its second name it is the same pipe");
    t.link("p", "q")?;
    let writer = t.open("q", OFlags::WRONLY)?;
    writer.write("again")?;
    same_data("data", &reader.read(100)?, b"again")
}

fn fifo_alone(t: &Case<'_>) -> Outcome {
    t.mknod("p", FileType::Fifo, 0o600, (0, 0))?;
    refused(t.open("p", OFlags::WRONLY | OFlags::NONBLOCK), Errno::NXIO)
}

fn io(error: std::io::Error) -> Stop {
    Stop::fail(error)
}

fn socket(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.step("bind, connect, talk");
    let listener = UnixListener::bind("s").map_err(io)?;
    let mut client = UnixStream::connect("s").map_err(io)?;
    let (mut server, _) = listener.accept().map_err(io)?;
    client.write_all(b"hello").map_err(io)?;
    let mut buf = [0; 5];
    server.read_exact(&mut buf).map_err(io)?;
    same_data("data", &buf, b"hello")?;
    t.step("under its new name too");
    t.rename("s", "s2")?;
    UnixStream::connect("s2").map_err(io)?;
    t.step("a name that is taken, one without a listener");
    let taken = UnixListener::bind("s2").map(drop).map_err(|error| error.kind());
    equal("bind", taken, Err(std::io::ErrorKind::AddrInUse))?;
    drop(listener);
    let gone = UnixStream::connect("s2").map(drop).map_err(|error| error.kind());
    equal("connect", gone, Err(std::io::ErrorKind::ConnectionRefused))
}

fn socket_file(t: &Case<'_>) -> Outcome {
    t.kernel()?;
    t.umask(0o027);
    let _listener = UnixListener::bind("s").map_err(io)?;
    t.umask(0o022);
    t.step("its attributes");
    let attr = t.lstat("s")?;
    equal("type", attr.kind(), FileType::Socket)?;
    equal("permissions", attr.permissions(), 0o750)?;
    refused(t.open("s", OFlags::RDWR), Errno::NXIO)?;
    Ok(t.unlink("s")?)
}

fn device_use(t: &Case<'_>) -> Outcome {
    t.require_root()?;
    t.step("the null device under another name");
    match t.mknod("null", FileType::CharacterDevice, 0o666, (1, 3)) {
        Err(Errno::PERM) => return Err(Stop::skip("this root may not make devices")),
        other => other?,
    }
    match t.open("null", OFlags::RDWR) {
        Err(Errno::ACCESS) => t.observe("open", "EACCES, as on a mount with nodev"),
        other => {
            let null = other?;
            t.observe("open", "ok");
            equal("written", null.write("gone")?, 4)?;
            same_data("read", &null.read(10)?, b"")?;
        }
    }
    Ok(())
}

fn sizes(t: &Case<'_>) -> Outcome {
    t.mknod("p", FileType::Fifo, 0o600, (0, 0))?;
    t.mknod("s", FileType::Socket, 0o600, (0, 0))?;
    for name in ["p", "s"] {
        equal("size", t.stat(name)?.size, 0)?;
        equal("device", t.stat(name)?.rdev, (0, 0))?;
    }
    Ok(())
}
