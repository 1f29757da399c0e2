"""The one URL of the shop."""

from django.urls import path

from orders import views

urlpatterns = [path("orders/<str:article>", views.place)]
