//! The transfer of a back end's state, as a front end does it that migrates its guest (vhost-user, "Migrating back-end
//! state").

use std::{
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    os::fd::{AsFd as _, BorrowedFd},
};

use anyhow::{Context as _, ensure};

use super::{
    FrontEnd,
    message::{request, u32s},
};

/// The direction of a transfer.
const SAVE: u32 = 0;
const LOAD: u32 = 1;
/// The only phase: the device is stopped.
const STOPPED: u32 = 0;
/// The reply to SET_DEVICE_STATE_FD, if the back end uses our descriptor.
const OURS: [u8; 8] = 0x100_u64.to_le_bytes();

impl FrontEnd {
    /// Returns the state of a back end whose queues are stopped.
    pub fn save_state(&self) -> anyhow::Result<Vec<u8>> {
        let mut reader = self.start_save()?;
        let mut state = Vec::new();
        reader.read_to_end(&mut state).context("cannot read the state")?;
        self.check_state()?;
        Ok(state)
    }

    /// Loads the state of another back end into this one, whose queues have not been started.
    pub fn load_state(&self, state: &[u8]) -> anyhow::Result<()> {
        let mut writer = self.start_load()?;
        let written = writer.write_all(state);
        drop(writer);
        self.check_state()?;
        written.context("cannot write the state")
    }

    /// Starts a transfer from the back end.
    pub fn start_save(&self) -> anyhow::Result<PipeReader> {
        let (reader, writer) = pipe()?;
        self.start_transfer(SAVE, writer.as_fd())?;
        Ok(reader)
    }

    /// Starts a transfer to the back end.
    pub fn start_load(&self) -> anyhow::Result<PipeWriter> {
        let (reader, writer) = pipe()?;
        self.start_transfer(LOAD, reader.as_fd())?;
        Ok(writer)
    }

    fn start_transfer(&self, direction: u32, pipe: BorrowedFd<'_>) -> anyhow::Result<()> {
        let payload = u32s(&[direction, STOPPED]);
        let reply = self.channel.ask_with(request::SET_DEVICE_STATE_FD, &payload, &[pipe])?;
        ensure!(reply == OURS, "the transfer was refused: {reply:?}");
        Ok(())
    }

    /// Waits for the end of the transfer. Errors: it has failed.
    pub fn check_state(&self) -> anyhow::Result<()> {
        let reply = self.channel.ask(request::CHECK_DEVICE_STATE, &[])?;
        ensure!(reply == [0; 8], "the transfer has failed: {reply:?}");
        Ok(())
    }
}
