//! The `maitred` command.

fn main() -> std::process::ExitCode {
    maitred::cli::main()
}
