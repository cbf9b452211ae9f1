"""Where this host is, as far as its files and variables tell: which sources it has.

Each function says why a source is there, for people, or "" if it is not. Nothing is asked over a
network: the firmware's tables (DMI) name the vendor of a virtual machine, launchers set variables.
"""

from __future__ import annotations

from holdfast.notices.protocol import SourceSurroundings

DMI = "/sys/class/dmi/id"
AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"  # every virtual machine of Azure has this tag
ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/accel*", "/dev/vfio/[0-9]*")
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def gce(around: SourceSurroundings) -> str:
    """A virtual machine of Google's; Google's own libraries take the variable, too."""
    if variable := _variable(around, "GCE_METADATA_HOST"):
        return variable
    product = around.read(f"{DMI}/product_name")
    return f"the product is called {product}" if product.startswith("Google") else ""


def aws(around: SourceSurroundings) -> str:
    """A virtual machine of EC2; Amazon's own libraries take the variables, too."""
    if around.environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return ""
    if variable := _variable(around, "AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        return variable
    vendor = around.read(f"{DMI}/sys_vendor")
    if vendor.startswith("Amazon EC2"):
        return f"the vendor is called {vendor}"
    # Older machine types run on Xen, whose firmware Amazon has marked.
    firmware = around.read(f"{DMI}/bios_version") if vendor == "Xen" else ""
    return f"the firmware is called {firmware}" if "amazon" in firmware.lower() else ""


def azure(around: SourceSurroundings) -> str:
    """A virtual machine of Azure: Hyper-V alone may be any machine's."""
    is_there = around.read(f"{DMI}/chassis_asset_tag") == AZURE_CHASSIS
    return "the chassis has the tag of Azure" if is_there else ""


def kubernetes(around: SourceSurroundings) -> str:
    """A pod that may ask its cluster."""
    variable = _variable(around, "KUBERNETES_SERVICE_HOST")
    return variable if variable and around.exists(f"{SERVICE_ACCOUNT}/token") else ""


def slurm(around: SourceSurroundings) -> str:
    """A job of Slurm's."""
    is_job = around.environment.get("SLURM_JOB_ID", "").isdecimal()
    return _variable(around, "SLURM_JOB_ID") if is_job else ""


def nowhere(_: SourceSurroundings) -> str:
    """Of sources that are there only if somebody wants them."""
    return ""


def has_accelerator(around: SourceSurroundings) -> bool:
    """Whether this host has devices that keep it from being moved to another one alive."""
    return any(around.exists(pattern) for pattern in ACCELERATORS)


def _variable(around: SourceSurroundings, name: str) -> str:
    return f"{name} is set" if around.environment.get(name) else ""
