//! `postonce-web partners …`: administration of partners. It accesses the store directly, needs no running server, and
//! notifies running processes of changes. Keys are created and revoked with `keys`.

mod output;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use postonce_schemas::json::{PartnerRate, codes, rules};
use postonce_shared::domain::credit::CreditCeilings;
use postonce_shared::domain::ids::{AccountKey, PartnerId, UserId};
use postonce_shared::domain::money::OverdraftLimit;
use postonce_shared::domain::partner::{
    Partner, PartnerStatus, Reach, RequestRate, SignatureAlgorithm, SignatureKey,
};
use postonce_shared::files::read_bounded;
use postonce_shared::oversight::audit::{AuditTarget, AuditTrail, Event, Outcome};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::text::{whole_number, without_mark_of_file};
use validator::Validate as _;

use self::output::{list, reach_in_words, show};
use crate::access::partner_service::{PartnerChangeOutcome, PartnerService};
use crate::access::partner_terms::{
    TermsChange, add_signature_key, credit_ceiling, format_name, named_reach, remove_signature_key,
    signature_material,
};
use crate::access::scopes::Scope;
use crate::cli::keys::{add_key, key_terms, parse_partner, parse_scope, recorded};
use crate::cli::times::Expiry;
use crate::formats::violations;

const MATERIAL_BYTES_MAX: u64 = 16 * 1024;
/// Value that resets a term: the configured rate, or no format.
const DEFAULT: &str = "default";

/// Subcommands of `partners`.
#[derive(Debug, Clone, Subcommand)]
pub enum PartnersCommand {
    /// Create a partner, and print its first key once.
    Add {
        /// Partner: a lower-case letter, then lower-case letters, digits or _.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
        /// Accessible accounts.
        #[command(flatten)]
        reach: ReachArgs,
        /// Format, request rate and credit ceilings.
        #[command(flatten)]
        terms: TermsArgs,
        /// Scope of the key; repeat it, or separate scopes with commas. Default: deposit, withdraw, read and
        /// accounts.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Vec<Scope>,
        /// Expiry of the key
        #[command(flatten)]
        expiry: Expiry,
    },
    /// Change the terms of a partner. Options that are not given keep their value; a new reach replaces the old
    /// one.
    Change {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
        /// Accessible accounts.
        #[command(flatten)]
        reach: ReachArgs,
        /// Format, request rate and credit ceilings.
        #[command(flatten)]
        terms: TermsArgs,
        /// Whether requests must be signed.
        #[arg(long, value_name = "true|false")]
        require_signature: Option<bool>,
    },
    /// List the partners.
    List,
    /// Show a partner and its key ids. The keys themselves are never shown.
    Show {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Refuse all requests of a partner until it is resumed. Its keys are kept.
    Suspend {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Accept requests of a suspended partner again.
    Resume {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        id: PartnerId,
    },
    /// Manage the keys with which a partner signs its requests: at most two, for rotation.
    #[command(subcommand)]
    SignatureKeys(SignatureKeysCommand),
}

/// Subcommands of `partners signature-keys`.
#[derive(Debug, Clone, Subcommand)]
pub enum SignatureKeysCommand {
    /// Add a key.
    Add {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        partner: PartnerId,
        /// Key id, as in the keyid of signatures: letters, digits, -, _ or .
        #[arg(value_parser = signature_key_id)]
        key_id: String,
        /// hmac-sha256 or ed25519
        #[arg(long, value_parser = signature_algorithm)]
        algorithm: SignatureAlgorithm,
        /// File with the key, or - for standard input: a secret of at least 32 bytes in base64, or an Ed25519
        /// public key as PEM or as 32 bytes in base64. It cannot be an argument, because other users can see
        /// arguments.
        #[arg(long)]
        file: PathBuf,
    },
    /// Remove a key. Requests signed with it are refused from then on.
    Remove {
        /// Partner.
        #[arg(value_parser = parse_partner)]
        partner: PartnerId,
        /// Key id.
        key_id: String,
    },
}

/// Options for the reach of a partner.
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

/// Options for the format, the request rate and the credit ceilings of a partner.
#[derive(Debug, Clone, Args)]
pub struct TermsArgs {
    /// Format of requests and responses when the request names none: json, xml or wwi; or default
    #[arg(long)]
    format: Option<String>,
    /// Requests per second, on average; or default, for the configured rate
    #[arg(long)]
    rate: Option<String>,
    /// Maximum burst of requests; requires --rate
    #[arg(long, requires = "rate", value_parser = parse_burst)]
    burst: Option<u64>,
    /// Highest overdraft limit that the partner may give an account, such as EUR=1000.00; may be repeated; none in
    /// other currencies
    #[arg(long = "credit-ceiling", value_name = "CURRENCY=LIMIT", value_parser = parse_ceiling)]
    credit_ceilings: Vec<OverdraftLimit>,
    /// No ceiling of overdraft limits
    #[arg(long, conflicts_with = "credit_ceilings")]
    no_credit_ceiling: bool,
}

fn parse_ceiling(text: &str) -> Result<OverdraftLimit, String> {
    let (currency, limit) = text.split_once('=').ok_or("is not CURRENCY=LIMIT, such as EUR=1000.00")?;
    credit_ceiling(currency, limit)
}

fn parse_burst(text: &str) -> Result<u64, &'static str> {
    whole_number(text).ok_or("must be a whole number")
}

fn parse_account(text: &str) -> Result<AccountKey, String> {
    let form = "is not USER/ACCOUNT: two UUIDs with a slash between them";
    let (user, account) = text.split_once('/').ok_or(form)?;
    Ok(AccountKey { user: user.parse().map_err(|_| form)?, account: account.parse().map_err(|_| form)? })
}

impl ReachArgs {
    /// Returns the reach that the options name; `None` if there are none.
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
    /// Returns the given ceilings, if there are any.
    fn credit_ceilings(&self) -> anyhow::Result<Option<CreditCeilings>> {
        if self.no_credit_ceiling {
            return Ok(Some(CreditCeilings::Unlimited));
        }
        let mut currencies = BTreeSet::new();
        for ceiling in &self.credit_ceilings {
            let code = ceiling.currency().code();
            ensure!(currencies.insert(code), "--credit-ceiling must have one limit for {code}");
        }
        let ceilings = self.credit_ceilings.iter().copied();
        Ok((!currencies.is_empty()).then(|| CreditCeilings::up_to(ceilings)))
    }

    fn format(&self) -> anyhow::Result<Option<Option<String>>> {
        let Some(format) = self.format.as_deref() else { return Ok(None) };
        if format == DEFAULT {
            return Ok(Some(None));
        }
        let named = format_name(format);
        named
            .map(|format| Some(Some(format)))
            .map_err(|rule| anyhow::anyhow!("--format {format:?} {rule}; or {DEFAULT}, for no own format"))
    }

    fn rate(&self) -> anyhow::Result<Option<Option<RequestRate>>> {
        let Some(rate) = self.rate.as_deref() else { return Ok(None) };
        if rate == DEFAULT {
            ensure!(self.burst.is_none(), "--burst requires a number for --rate, not {DEFAULT}");
            return Ok(Some(None));
        }
        let saturated = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let per_second = saturated(whole_number(rate).unwrap_or(0));
        let rate = PartnerRate { per_second, burst: self.burst.map_or(per_second, saturated) };
        if let Err(errors) = rate.validate() {
            let position = |_: &str, name: &str| usize::from(name != "per_second");
            if let Some(violation) = violations::of(errors, &position).first() {
                let option = if violation.field == "per_second" { "--rate" } else { "--burst" };
                bail!("{option} {}", violation.message);
            }
        }
        let PartnerRate { per_second, burst } = rate;
        Ok(Some(Some(RequestRate { per_second, burst })))
    }
}

fn signature_key_id(text: &str) -> Result<String, String> {
    violations::checked(text, rules::signature_key_id)
}

fn signature_algorithm(text: &str) -> Result<SignatureAlgorithm, String> {
    let code = violations::checked(text, codes::is_signature_algorithm)?;
    SignatureAlgorithm::from_code(&code).ok_or_else(|| format!("{code} is not supported"))
}

/// Runs a command and prints its result.
///
/// # Errors
/// When the store is not available, or the partner refuses the change.
pub async fn run(
    command: PartnersCommand,
    (service, audit): (&PartnerService, &Arc<AuditTrail>),
    (out, err): (&mut (dyn Write + Send), &mut (dyn Write + Send)),
) -> anyhow::Result<()> {
    match command {
        PartnersCommand::Add { id, reach, terms, scopes, expiry } => {
            let key_terms = key_terms(&scopes, &expiry, service.now())?;
            let Some(reach) = reach.reach()? else {
                bail!(
                    "no reach is given for {id}: use --all-accounts, or --user and --account, which may be repeated"
                );
            };
            let (format, rate) = (terms.format()?.flatten(), terms.rate()?.flatten());
            let credit_ceilings = terms.credit_ceilings()?.unwrap_or_default();
            let partner = Partner {
                format,
                rate,
                credit_ceilings,
                ..Partner::active(id.clone(), reach, service.now())
            };
            let is_new = create(service, audit, &partner).await.context("the partner could not be stored")?;
            ensure!(is_new, "partner {id} already exists; `partners change` changes it");
            writeln!(err, "created partner {id}, which reaches {}", reach_in_words(&partner.reach))?;
            let key = add_key(service, audit, &id, &key_terms).await;
            let key = key.with_context(|| {
                format!("partner {id} was created without a key; create one with `keys add`")
            })?;
            writeln!(out, "{}", key.expose())?;
        }
        PartnersCommand::Change { id, reach, terms, require_signature } => {
            let terms = TermsChange {
                reach: reach.reach()?,
                status: None,
                format: terms.format()?,
                rate: terms.rate()?,
                credit_ceilings: terms.credit_ceilings()?,
                signature_required: require_signature,
            };
            ensure!(terms != TermsChange::default(), "no change is given; --help lists the options");
            let changed = service.change(&id, |partner| terms.apply(partner, Scope::Admin)).await;
            let on = AuditTarget::one("partner", &id);
            let changed = recorded(audit, "partner.change", on, changed).await;
            show(&done(&id, changed)?, service, out).await?;
        }
        PartnersCommand::List => list(service, out).await?,
        PartnersCommand::Show { id } => {
            let found = service.find(&id).await.context("the partner could not be read")?;
            let partner = found.with_context(|| unknown(&id))?;
            show(&partner, service, out).await?;
        }
        PartnersCommand::Suspend { id } => {
            set_status((service, audit), &id, PartnerStatus::Suspended, out).await?;
        }
        PartnersCommand::Resume { id } => {
            set_status((service, audit), &id, PartnerStatus::Active, out).await?;
        }
        PartnersCommand::SignatureKeys(command) => {
            change_signature_keys(command, (service, audit), out).await?;
        }
    }
    Ok(())
}

/// Creates a partner, and records the act in the audit trail. Returns `false` if the id exists already.
///
/// # Errors
/// [`StoreFault`]: the outcome is unknown.
async fn create(
    service: &PartnerService,
    audit: &Arc<AuditTrail>,
    partner: &Partner,
) -> Result<bool, StoreFault> {
    let created = service.create(partner).await;
    let outcome = match &created {
        Ok(true) => Outcome::Done,
        Ok(false) => Outcome::Refused("partner_exists"),
        Err(_) => Outcome::Failed("storage_unavailable"),
    };
    let on = AuditTarget::one("partner", &partner.id);
    audit.record(&Event::by_operator("partner.change", on, outcome)).await;
    created
}

async fn set_status(
    (service, audit): (&PartnerService, &Arc<AuditTrail>),
    id: &PartnerId,
    status: PartnerStatus,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let terms = TermsChange { status: Some(status), ..TermsChange::default() };
    let changed = service.change(id, |partner| terms.apply(partner, Scope::Admin)).await;
    let on = AuditTarget::one("partner", id).and("status", status.code());
    done(id, recorded(audit, "partner.change", on, changed).await)?;
    writeln!(out, "{id} is {}", status.code())?;
    Ok(())
}

async fn change_signature_keys(
    command: SignatureKeysCommand,
    (service, audit): (&PartnerService, &Arc<AuditTrail>),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        SignatureKeysCommand::Add { partner, key_id, algorithm, file } => {
            let text = read_text(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let material = signature_material(algorithm, &text)
                .map_err(|rule| anyhow::anyhow!("the content of {} {rule}", file.display()))?;
            let key = SignatureKey { id: key_id, algorithm, material };
            let changed = service.change(&partner, |partner| add_signature_key(partner, &key)).await;
            let on = AuditTarget::one("partner", &partner).and("key", &key.id);
            done(&partner, recorded(audit, "signature_key.add", on, changed).await)?;
            writeln!(out, "{partner} can sign with {}", key.id)?;
        }
        SignatureKeysCommand::Remove { partner, key_id } => {
            let changed = service.change(&partner, |partner| remove_signature_key(partner, &key_id)).await;
            let on = AuditTarget::one("partner", &partner);
            // The id is not logged, because the argument could be a key.
            let on = if matches!(changed, Ok(PartnerChangeOutcome::Done(_))) {
                on.and("key", &key_id)
            } else {
                on
            };
            done(&partner, recorded(audit, "signature_key.remove", on, changed).await)?;
            writeln!(out, "removed {key_id}")?;
        }
    }
    Ok(())
}

/// Reads a small file, or standard input, without its byte order mark.
fn read_text(file: &Path) -> anyhow::Result<String> {
    let bytes = if file == Path::new("-") {
        read_bounded(std::io::stdin().lock(), MATERIAL_BYTES_MAX)?
    } else {
        read_bounded(std::fs::File::open(file)?, MATERIAL_BYTES_MAX)?
    };
    // Omits the error, which could quote key material.
    let text = std::str::from_utf8(without_mark_of_file(&bytes));
    text.map(str::to_owned).map_err(|_| anyhow::anyhow!("it is not text in UTF-8"))
}

fn unknown(id: &PartnerId) -> String {
    format!("partner {id} does not exist; `partners list` shows all partners")
}

/// Returns the partner after a successful change; otherwise an error.
fn done<E: std::error::Error + Send + Sync + 'static>(
    id: &PartnerId,
    changed: Result<PartnerChangeOutcome, E>,
) -> anyhow::Result<Partner> {
    match changed.context("the outcome of the change is unknown; it is safe to retry")? {
        PartnerChangeOutcome::Done(partner) => Ok(partner),
        PartnerChangeOutcome::Unknown => bail!(unknown(id)),
        PartnerChangeOutcome::Refused(refusal) => bail!("{id} was not changed: {refusal}"),
    }
}

#[cfg(test)]
mod tests;
