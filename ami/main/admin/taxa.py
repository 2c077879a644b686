"""The admin of taxa and taxa lists."""

from django.contrib import admin

from ami.main.models import TaxaList, Taxon


@admin.register(Taxon)
class TaxonAdmin(admin.ModelAdmin):
    """Taxa."""

    list_display = ("name", "display_name", "rank", "parent", "active", "shared")
    list_filter = ("rank", "active", "shared")
    list_select_related = ("parent",)
    search_fields = ("name", "display_name")
    autocomplete_fields = ("parent", "synonym_of", "projects")
    readonly_fields = ("parents_json",)


@admin.register(TaxaList)
class TaxaListAdmin(admin.ModelAdmin):
    """Lists of taxa."""

    list_display = ("name", "description")
    search_fields = ("name",)
    autocomplete_fields = ("taxa", "projects")
