//! The live table: draws, waits for the next reading or a key, and gives the terminal back as it was.

use std::{
    io::{self, Write},
    panic,
    sync::Once,
    time::{Duration, Instant},
};

use anyhow::Result;
use crossterm::{
    cursor,
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue,
    style::{Attribute, Print, SetAttribute},
    terminal,
};

use super::{
    source::Source,
    table::{Emphasis, Line, Sort, block},
};

/// Shows `sources`, read every `interval`, until a key ends it.
pub(super) fn watch(sources: &mut [Source], interval: Duration) -> Result<()> {
    let _screen = Screen::enter()?;
    let mut sort = Sort::default();
    loop {
        let next = Instant::now() + interval;
        draw(sources, sort, interval)?;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if !event::poll(left)? {
                break;
            }
            match event::read()? {
                Event::Key(key) if is_quit(&key) => return Ok(()),
                Event::Key(key) if key.kind == KeyEventKind::Press && key.code == KeyCode::Char('s') => {
                    sort = sort.next();
                }
                Event::Resize(..) => {}
                _ => continue,
            }
            draw(sources, sort, interval)?;
        }
        for source in &mut *sources {
            // The source keeps what went wrong, and the table shows it.
            let _ = source.read();
        }
    }
}

/// In raw mode, Ctrl-C is a key.
fn is_quit(key: &KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c' | 'd') => is_control,
        _ => false,
    }
}

fn draw(sources: &[Source], sort: Sort, interval: Duration) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    let mut lines = Vec::new();
    for source in sources {
        lines.extend(block(source, sort));
        lines.push(Line { text: String::new(), emphasis: Emphasis::None });
    }
    let height = usize::from(height.saturating_sub(1));
    let hidden = (lines.len() - 1).saturating_sub(height);
    lines.truncate(height);
    let more = if hidden > 0 { format!("   {hidden} more lines") } else { String::new() };
    let foot = format!("q quit   s sort (by {})   every {} s{more}", sort.word(), interval.as_secs_f64());

    let mut out = io::stdout().lock();
    queue!(out, terminal::BeginSynchronizedUpdate, terminal::Clear(terminal::ClearType::All))?;
    for (row, line) in (0..).zip(&lines) {
        let attribute = match line.emphasis {
            Emphasis::None => Attribute::Reset,
            Emphasis::Heading => Attribute::Bold,
            Emphasis::Problem => Attribute::Reverse,
        };
        let text: String = line.text.chars().take(width.into()).collect();
        queue!(out, cursor::MoveTo(0, row), SetAttribute(attribute), Print(text), SetAttribute(Attribute::Reset))?;
    }
    let foot: String = foot.chars().take(width.into()).collect();
    queue!(out, cursor::MoveTo(0, height as u16), SetAttribute(Attribute::Dim), Print(foot))?;
    queue!(out, SetAttribute(Attribute::Reset), terminal::EndSynchronizedUpdate)?;
    out.flush()
}

/// The terminal in raw mode with its alternate screen, until this is dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        // A panic's message on the alternate screen would vanish with it.
        HOOK.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                leave();
                report(info);
            }));
        });
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Doing it twice does no harm. Where the terminal is gone, there is nothing to give back.
fn leave() {
    let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}
