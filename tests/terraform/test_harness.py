"""What the checks of Terraform stand on: a schema that is read and told as it is, and silence that is never success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.costs import ROOTS
from tests.terraform import bindings, schema
from tests.terraform.bindings import Types, Unavailable
from tests.terraform.conftest import unavailable
from tests.terraform.folders import folders
from tests.terraform.program import Terraform
from tests.terraform.schema import Attribute, Block, NestedBlock, UnreadableBindings

TYPE = """\
class ThingRuleOutputReference extends cdktn.ComplexObject {
    constructor(terraformResource, terraformAttribute) {
        super(terraformResource, terraformAttribute, false, 0);
    }
    // days - computed: false, optional: true, required: false
    _days;
    get days() {
        return this.getNumberAttribute('days');
    }
}
class ThingEndOutputReference extends cdktn.ComplexObject {
    // zone - computed: true, optional: false, required: false
    get zone() {
        return this.getStringAttribute('zone');
    }
}
class ThingEndList extends cdktn.ComplexList {
}
class Thing extends cdktn.TerraformResource {
    // name - computed: false, optional: false, required: true
    _name;
    get name() {
        return this.getStringAttribute('name');
    }
    // secret_wo - computed: false, optional: true, required: false
    get secretWo() {
        return this.getStringAttribute('secret_wo');
    }
    // owners - computed: true, optional: true, required: false
    get owners() {
        return cdktn.Fn.tolist(this.getListAttribute('owners'));
    }
    // ends - computed: true, optional: false, required: false
    _ends = new ThingEndList(this, "ends", false);
    // rule - computed: false, optional: false, required: true
    _rule = new ThingRuleOutputReference(this, "rule");
    // =========
    synthesizeAttributes() {
        return {
            secret_wo: this.markWriteOnlyAttribute(cdktn.stringToTerraform(this._secretWo)),
        };
    }
}
"""


def test_bindings_are_read() -> None:
    assert schema.read(TYPE) == Block(
        attributes=(
            Attribute("name", "string", required=True),
            Attribute("secret_wo", "string", optional=True, write_only=True),
            Attribute("owners", ["set", "string"], optional=True, computed=True),
            Attribute("ends", ["list", ["object", {"zone": "string"}]], computed=True),
        ),
        blocks=(
            NestedBlock("rule", "list", Block((Attribute("days", "number", optional=True),)), 1, 1),
        ),
    )


@pytest.mark.parametrize("spoilt", ["getNumberAttribute", "TerraformResource"])
def test_bindings_that_are_written_otherwise_are_refused(spoilt: str) -> None:
    with pytest.raises(UnreadableBindings):
        schema.read(TYPE.replace(spoilt, "somethingNew"))


def test_terraform_sees_the_schema_that_was_read(
    terraform: Terraform, types: Types, tree: Path
) -> None:
    folder = tree / "modules" / "redis"
    terraform.initialise(folder)
    done = terraform.run(folder, "providers", "schema", "-json")
    (seen,) = json.loads(done.stdout)["provider_schemas"].values()
    assert _block(seen["provider"]["block"]) == _plain(types["provider"]["aws"])
    for kind, name in (
        ("resource", "resource_schemas"),
        ("data", "data_source_schemas"),
        ("ephemeral", "ephemeral_resource_schemas"),
    ):
        told = {each: _block(of["block"]) for each, of in seen[name].items()}
        assert told == {each: _plain(block) for each, block in types[kind].items()}


def test_every_root_is_priced_and_tested_whole() -> None:
    assert set(folders("envs/*")) == {f"envs/{root}" for root in ROOTS}


def test_what_cannot_be_checked_fails_in_ci_and_is_skipped_aloud_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no terraform"):
        unavailable("no terraform")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no terraform"):
        unavailable("no terraform")


def test_a_package_that_cannot_be_had_is_said_to_be(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"bindings @ file://{tmp_path}/none.whl --hash=sha256:{'0' * 64}\n")
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"pip cannot fetch requirements\.txt: .*none\.whl"):
            bindings.types_of(tmp_path, tmp_path / "cache", requirements)


def _block(told: dict[str, Any]) -> dict[str, Any]:
    flags = ("required", "optional", "computed", "write_only")
    attributes = {
        name: (of["type"], *(bool(of.get(flag)) for flag in flags))
        for name, of in told.get("attributes", {}).items()
    }
    blocks = {
        name: (
            of["nesting_mode"],
            of.get("min_items", 0),
            of.get("max_items", 0),
            _block(of["block"]),
        )
        for name, of in told.get("block_types", {}).items()
    }
    return attributes | blocks


def _plain(block: Block) -> dict[str, Any]:
    attributes = {
        each.name: (each.type, each.required, each.optional, each.computed, each.write_only)
        for each in block.attributes
    }
    blocks = {
        each.name: (each.nesting, each.least, each.most, _plain(each.block))
        for each in block.blocks
    }
    return attributes | blocks
