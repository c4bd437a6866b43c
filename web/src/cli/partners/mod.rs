//! `postonce-web partners …`: who may do what, for operators. It works on the store itself, needs no server, and
//! rings those that run. Keys are made and revoked with `keys`.

mod shown;

use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use postonce_shared::domain::ids::{AccountKey, PartnerId, UserId};
use postonce_shared::domain::partner::{
    Partner, PartnerStatus, Reach, RequestRate, SignatureAlgorithm, SignatureKey,
};
use postonce_shared::oversight::audit::AuditTarget;

use self::shown::{list, reach_in_words, show};
use crate::access::partner_service::{Changed, PartnerService};
use crate::access::partner_terms::{
    TermsChange, add_signature_key, format_name, named_reach, remove_signature_key, requests,
    signature_algorithm, signature_key_id, signature_material,
};
use crate::cli::keys::{Scopes, add_key, create, parse_partner, parse_scope, recorded, scopes_or_default};

/// Most bytes of a file with a key.
const MATERIAL_BYTES_MAX: u64 = 16 * 1024;
/// What stands for "as the configuration says" or "none of its own".
const DEFAULT: &str = "default";

/// What to do with partners.
#[derive(Debug, Clone, Subcommand)]
pub enum PartnersCommand {
    /// Makes a partner, and prints its first key, once.
    Add {
        /// Its name: a lower-case letter first, then lower-case letters, digits or _.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
        /// What it may touch.
        #[command(flatten)]
        reach: ReachArgs,
        /// On what terms it calls.
        #[command(flatten)]
        terms: TermsArgs,
        /// What its key allows; repeat it, or separate with commas. Without it: deposit, withdraw, read
        /// and accounts.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Vec<Scopes>,
    },
    /// Changes the terms of a partner. What is not named stays as it is; a new reach takes the place of the
    /// old one.
    Change {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
        /// What it may touch.
        #[command(flatten)]
        reach: ReachArgs,
        /// On what terms it calls.
        #[command(flatten)]
        terms: TermsArgs,
        /// Whether its requests have to be signed.
        #[arg(long, value_name = "true|false")]
        require_signature: Option<bool>,
    },
    /// Lists the partners.
    List,
    /// Shows what a partner may do, and its keys. The keys themselves are never shown.
    Show {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Refuses all requests of a partner, until it is resumed. Its keys are kept.
    Suspend {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Lets a suspended partner call again.
    Resume {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Keys that a partner signs its requests with: at most two, to change over.
    #[command(subcommand)]
    SignatureKeys(SignatureKeysCommand),
}

/// What to do with keys to sign with.
#[derive(Debug, Clone, Subcommand)]
pub enum SignatureKeysCommand {
    /// Adds a key.
    Add {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        partner: PartnerId,
        /// The id of the key, as signatures name it: letters, digits, -, _ or .
        #[arg(value_parser = signature_key_id)]
        key_id: String,
        /// hmac-sha256 or ed25519
        #[arg(long, value_parser = signature_algorithm)]
        algorithm: SignatureAlgorithm,
        /// The file that has it, or - for standard input: a secret of at least 32 bytes in base64, or a
        /// public key of Ed25519 as PEM or as 32 bytes in base64. It is never an argument, which others
        /// could read.
        #[arg(long)]
        file: PathBuf,
    },
    /// Removes a key. What it signed is refused from then on.
    Remove {
        /// The partner.
        #[arg(value_parser = parse_partner)]
        partner: PartnerId,
        /// The id of the key.
        key_id: String,
    },
}

/// What a partner may touch.
#[derive(Debug, Clone, Args)]
pub struct ReachArgs {
    /// Every account of the bank
    #[arg(long, conflicts_with_all = ["users", "accounts"])]
    all_accounts: bool,
    /// All accounts of this user, future ones included; may be repeated
    #[arg(long = "user", value_name = "USER")]
    users: Vec<UserId>,
    /// This account; may be repeated
    #[arg(long = "account", value_name = "USER/ACCOUNT", value_parser = parse_account)]
    accounts: Vec<AccountKey>,
}

/// On what terms a partner calls.
#[derive(Debug, Clone, Args)]
pub struct TermsArgs {
    /// The format that it reads and writes when its requests do not say: json, xml or wwi; or default
    #[arg(long)]
    format: Option<String>,
    /// Requests in a second, over time; or default, for what the configuration says
    #[arg(long)]
    rate: Option<String>,
    /// Requests at once after a rest; with --rate
    #[arg(long, requires = "rate")]
    burst: Option<u64>,
}

fn parse_account(text: &str) -> Result<AccountKey, String> {
    let form = "is not USER/ACCOUNT, two UUIDs with a slash between them";
    let (user, account) = text.split_once('/').ok_or(form)?;
    Ok(AccountKey { user: user.parse().map_err(|_| form)?, account: account.parse().map_err(|_| form)? })
}

impl ReachArgs {
    /// The reach that was named, if one was.
    fn reach(&self) -> anyhow::Result<Option<Reach>> {
        let Self { all_accounts, users, accounts } = self;
        if *all_accounts {
            return Ok(Some(Reach::Everything));
        }
        if users.is_empty() && accounts.is_empty() {
            return Ok(None);
        }
        let (users, accounts) = (users.iter().copied().collect(), accounts.iter().copied().collect());
        named_reach(users, accounts).map(Some).map_err(|rule| anyhow::anyhow!("the reach {rule}"))
    }
}

impl TermsArgs {
    fn format(&self) -> anyhow::Result<Option<Option<String>>> {
        let Some(format) = self.format.as_deref() else { return Ok(None) };
        if format == DEFAULT {
            return Ok(Some(None));
        }
        let named = format_name(format);
        named
            .map(|format| Some(Some(format)))
            .map_err(|rule| anyhow::anyhow!("--format {format:?} {rule}; or {DEFAULT}, for none of its own"))
    }

    fn rate(&self) -> anyhow::Result<Option<Option<RequestRate>>> {
        let Some(rate) = self.rate.as_deref() else { return Ok(None) };
        if rate == DEFAULT {
            ensure!(self.burst.is_none(), "--burst goes with a number for --rate, not with {DEFAULT}");
            return Ok(Some(None));
        }
        let refused = |name: &str, rule: String| anyhow::anyhow!("{name} {rule}");
        let per_second = u64::from_str(rate).unwrap_or(0);
        let per_second = requests(per_second).map_err(|rule| refused("--rate", rule))?;
        let burst = self.burst.map_or(Ok(per_second), requests).map_err(|rule| refused("--burst", rule))?;
        Ok(Some(Some(RequestRate { per_second, burst })))
    }
}

/// Carries out a command and prints what became of it.
///
/// # Errors
/// When the store cannot be used, or the wish does not fit the partner.
pub async fn run(
    command: PartnersCommand,
    desk: &PartnerService,
    (out, err): (&mut (dyn Write + Send), &mut (dyn Write + Send)),
) -> anyhow::Result<()> {
    match command {
        PartnersCommand::Add { id, reach, terms, scopes } => {
            let Some(reach) = reach.reach()? else {
                bail!(
                    "say what {id} may touch: --all-accounts, or --user and --account, which may be repeated"
                );
            };
            let (format, rate) = (terms.format()?.flatten(), terms.rate()?.flatten());
            let partner = Partner { format, rate, ..Partner::active(id.clone(), reach, desk.now()) };
            let is_new = create(desk, &partner).await.context("the partner could not be stored")?;
            ensure!(is_new, "there is a partner {id} already; `partners change` changes it");
            writeln!(err, "partner {id} is new, and reaches {}", reach_in_words(&partner.reach))?;
            let key = add_key(desk, &id, &scopes_or_default(&scopes)).await;
            let key = key.with_context(|| format!("{id} is made; make its key with `keys add`"))?;
            writeln!(out, "{}", key.expose())?;
        }
        PartnersCommand::Change { id, reach, terms, require_signature } => {
            let terms = TermsChange {
                reach: reach.reach()?,
                status: None,
                format: terms.format()?,
                rate: terms.rate()?,
                signature_required: require_signature,
            };
            ensure!(terms != TermsChange::default(), "say what is to change; --help lists it");
            let changed = desk.change(&id, |partner| terms.apply(partner)).await;
            let changed = recorded("partner.change", AuditTarget::one("partner", &id), changed);
            show(&done(&id, changed)?, desk, out).await?;
        }
        PartnersCommand::List => list(desk, out).await?,
        PartnersCommand::Show { id } => {
            let found = desk.find(&id).await.context("the partner could not be read")?;
            let partner = found.with_context(|| unknown(&id))?;
            show(&partner, desk, out).await?;
        }
        PartnersCommand::Suspend { id } => turn(desk, &id, PartnerStatus::Suspended, out).await?,
        PartnersCommand::Resume { id } => turn(desk, &id, PartnerStatus::Active, out).await?,
        PartnersCommand::SignatureKeys(command) => sign(command, desk, out).await?,
    }
    Ok(())
}

async fn turn(
    desk: &PartnerService,
    id: &PartnerId,
    status: PartnerStatus,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let terms = TermsChange { status: Some(status), ..TermsChange::default() };
    let changed = desk.change(id, |partner| terms.apply(partner)).await;
    let on = AuditTarget::one("partner", id).and("status", status.code());
    done(id, recorded("partner.change", on, changed))?;
    writeln!(out, "{id} is {}", status.code())?;
    Ok(())
}

async fn sign(
    command: SignatureKeysCommand,
    desk: &PartnerService,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        SignatureKeysCommand::Add { partner, key_id, algorithm, file } => {
            let text = read_text(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let material = signature_material(algorithm, &text)
                .map_err(|rule| anyhow::anyhow!("what stands in {} {rule}", file.display()))?;
            let key = SignatureKey { id: key_id, algorithm, material };
            let changed = desk.change(&partner, |partner| add_signature_key(partner, &key)).await;
            let on = AuditTarget::one("partner", &partner).and("key", &key.id);
            done(&partner, recorded("signature_key.add", on, changed))?;
            writeln!(out, "{partner} may sign with {}", key.id)?;
        }
        SignatureKeysCommand::Remove { partner, key_id } => {
            let changed = desk.change(&partner, |partner| remove_signature_key(partner, &key_id)).await;
            let on = AuditTarget::one("partner", &partner);
            // What is no id of a key may be a key.
            let on = if matches!(changed, Ok(Changed::Done(_))) { on.and("key", &key_id) } else { on };
            done(&partner, recorded("signature_key.remove", on, changed))?;
            writeln!(out, "removed {key_id}")?;
        }
    }
    Ok(())
}

/// The text of a small file, or of standard input.
fn read_text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MATERIAL_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(file)?.take(MATERIAL_BYTES_MAX).read_to_string(&mut text)
    };
    read?;
    Ok(text)
}

fn unknown(id: &PartnerId) -> String {
    format!("there is no partner {id}; `partners list` shows them")
}

/// The partner after a change.
fn done<E: std::error::Error + Send + Sync + 'static>(
    id: &PartnerId,
    changed: Result<Changed, E>,
) -> anyhow::Result<Partner> {
    match changed.context("the partner may not be changed; asking again is safe")? {
        Changed::Done(partner) => Ok(partner),
        Changed::Unknown => bail!(unknown(id)),
        Changed::Refused(unfit) => bail!("{id} stays as it is: {unfit}"),
    }
}

#[cfg(test)]
mod tests;
